import { Badge } from "@mantine/core";
import { useInfiniteQuery, useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { KeyValues, Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { plural } from "../../lib/plural.ts";
import type { OperatorOverview } from "../../lib/wire.ts";
import { configurationQuery, recordQuery, runChecks } from "./api.ts";
import styles from "./Operator.module.css";
import { Nothing, Row } from "./Row.tsx";

export function Processes({ overview }: { overview: OperatorOverview }): ReactNode {
  return (
    <Section flush title="Processes" hint="Every process that serves this database.">
      {overview.processes.length === 0 && <Nothing>None has reported yet.</Nothing>}
      <ul>
        {overview.processes.map((each) => (
          <Row
            key={each.id}
            title={`${each.host}:${each.pid}`}
            detail={
              <>
                {each.version} ({each.commit}){each.worker !== null && ` · worker ${each.worker}`} ·
                started <TimeAgo iso={each.startedAt} /> · seen <TimeAgo iso={each.seenAt} />
              </>
            }
          >
            {each.gone ? <Badge color="yellow">Gone</Badge> : <Badge color="green">Runs</Badge>}
          </Row>
        ))}
      </ul>
    </Section>
  );
}

const LEVEL: Readonly<Record<string, { label: string; color: string }>> = {
  ok: { label: "OK", color: "green" },
  warning: { label: "Warning", color: "yellow" },
  wrong: { label: "Wrong", color: "red" },
};

export function Checks(): ReactNode {
  const run = useMutation({ mutationFn: runChecks });
  const found = run.data?.findings.filter(({ level }) => level !== "ok") ?? [];
  const good = (run.data?.findings.length ?? 0) - found.length;
  return (
    <Section
      flush
      title="Checks"
      hint="The doctor's checks of database, chains, relayers and servers. They change nothing and take some seconds."
      actions={
        <MutationButton mutation={run} pending="Checking…">
          Run the checks
        </MutationButton>
      }
    >
      {run.error !== null && <ErrorNotice title="The checks did not run" error={run.error} />}
      {run.data && (
        <>
          <p role="status">
            {plural(good, "check is", "checks are")} fine
            {found.length > 0 ? `, ${plural(found.length, "is", "are")} not:` : "."}
          </p>
          <ul>
            {found.map(({ check, level, says, todo }) => (
              <Row key={`${check}${says}`} title={check} detail={`${says}. ${todo ?? ""}`}>
                <Badge color={LEVEL[level]?.color}>{LEVEL[level]?.label ?? level}</Badge>
              </Row>
            ))}
          </ul>
        </>
      )}
    </Section>
  );
}

export function ServiceRecord(): ReactNode {
  const query = useInfiniteQuery(recordQuery);
  return (
    <Section flush title="Operators' record" hint="Who changed what. Nothing in it can be changed.">
      <List
        query={query}
        what="entries"
        failed="The record could not be loaded"
        placeholders={2}
        empty={<Nothing>No entries.</Nothing>}
      >
        {({ seq, at, action, wallet, who, what }) => (
          <Row
            key={seq}
            title={action}
            detail={
              <>
                {wallet === null ? who : <Address value={wallet} copy={false} />} ·{" "}
                <TimeAgo iso={at} /> · {JSON.stringify(what)}
              </>
            }
          >
            {seq}
          </Row>
        )}
      </List>
    </Section>
  );
}

export function Configuration(): ReactNode {
  const query = useQuery(configurationQuery);
  return (
    <Section
      title="Configuration"
      hint="Of the process that answered. Secrets are not shown, and of a URL only its host."
    >
      <QueryStatus query={query} what="the configuration" failed="It could not be loaded">
        <Skeleton shape="row" count={3} />
      </QueryStatus>
      <div className={styles.settings}>
        {query.data?.groups.map(({ title, settings }) => (
          <details key={title}>
            <summary>
              {title} ({settings.filter(({ isSet }) => isSet).length} set)
            </summary>
            <KeyValues
              rows={settings.map(
                ({ key, isSet, value }) =>
                  [
                    key,
                    `${value ?? (isSet ? "set" : "not set")}${isSet ? "" : " (default)"}`,
                  ] as const,
              )}
            />
          </details>
        ))}
      </div>
    </Section>
  );
}

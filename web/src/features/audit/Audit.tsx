import { infiniteQueryOptions, useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { Section } from "../../components/Layout.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import { formatDateTime } from "../../lib/time.ts";
import type { Agent, AuditEntry, Page } from "../../lib/wire.ts";
import styles from "./Audit.module.css";
import { actionName, fieldName, describeValue } from "./words.ts";

const auditQuery = (agentId: string) =>
  infiniteQueryOptions({
    queryKey: keys.audit(agentId),
    queryFn: ({ signal, pageParam }) =>
      api.get<Page<AuditEntry>>(`/api/agents/${agentId}/audit`, {
        signal,
        query: { limit: 50, cursor: pageParam },
      }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.nextCursor ?? undefined,
  });

export function Audit({ agent }: { agent: Agent }): ReactNode {
  const query = useInfiniteQuery(auditQuery(agent.id));
  const entries = query.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Section
      flush
      title="Audit"
      hint="Every change of rules and keys: who changed it, when, and the values before and after."
    >
      <QueryStatus query={query} what="the audit" failed="The audit could not be loaded">
        <Skeleton shape="row" count={4} />
      </QueryStatus>
      {query.isSuccess && entries.length === 0 && <EmptyState title="No changes yet" />}
      <ol className={styles.list}>
        {entries.map((entry) => (
          <Entry key={entry.id} entry={entry} />
        ))}
      </ol>
      <LoadMore query={query} what="entries" />
    </Section>
  );
}

/** The zero address stands for no account: an event of the chain, or an attempt by an unknown caller. */
function Actor({ entry: { actor, action } }: { entry: AuditEntry }): ReactNode {
  if (!/^0x0+$/.test(actor)) return <Address value={actor} copy={false} />;
  return action.endsWith(".refused") ? "unknown" : "the chain";
}

function Entry({ entry }: { entry: AuditEntry }): ReactNode {
  const fields = [
    ...new Set([...Object.keys(entry.before ?? {}), ...Object.keys(entry.after ?? {})]),
  ];
  return (
    <li className={styles.entry}>
      <div className={styles.what}>
        <strong>{actionName(entry.action)}</strong>
        <span className={styles.who}>
          <time dateTime={entry.createdAt}>{formatDateTime(entry.createdAt)}</time> by{" "}
          <Actor entry={entry} />
        </span>
      </div>
      <dl className={styles.fields}>
        {fields.map((field) => (
          <div key={field}>
            <dt>{fieldName(field)}</dt>
            <dd>
              {entry.before !== null && field in entry.before && (
                <del>{describeValue(entry.before[field])}</del>
              )}{" "}
              {entry.after !== null && field in entry.after && (
                <ins>{describeValue(entry.after[field])}</ins>
              )}
            </dd>
          </div>
        ))}
      </dl>
    </li>
  );
}

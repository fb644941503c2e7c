import { EmptyState, Text } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import { formatDateTime } from "../../lib/time.ts";
import type { Agent, AuditEntry } from "../../lib/wire.ts";
import styles from "./Audit.module.css";
import { actionName, describeField, fieldName } from "./words.ts";

export function Audit({ agent }: { agent: Agent }): ReactNode {
  const query = useInfiniteQuery(
    pagedQuery<AuditEntry>(keys.audit(agent.id), `/api/agents/${agent.id}/audit`),
  );
  return (
    <Section
      flush
      title="Audit"
      hint="Every change of rules and keys: who changed it, when, and the values before and after."
    >
      <List
        query={query}
        what="entries"
        failed="The audit could not be loaded"
        empty={<EmptyState title="No changes yet" />}
      >
        {(entry) => <Entry key={entry.id} entry={entry} />}
      </List>
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
    <li className={`list-row ${styles.entry}`}>
      <div className={styles.what}>
        <strong>{actionName(entry.action)}</strong>
        <Text span c="dimmed" size="sm">
          <time dateTime={entry.createdAt}>{formatDateTime(entry.createdAt)}</time> by{" "}
          <Actor entry={entry} />
        </Text>
      </div>
      <dl className={styles.fields}>
        {fields.map((field) => (
          <div key={field}>
            <dt>{fieldName(field)}</dt>
            <dd>
              {entry.before !== null && field in entry.before && (
                <del>{describeField(field, entry.before[field])}</del>
              )}{" "}
              {entry.after !== null && field in entry.after && (
                <ins>{describeField(field, entry.after[field])}</ins>
              )}
            </dd>
          </div>
        ))}
      </dl>
    </li>
  );
}

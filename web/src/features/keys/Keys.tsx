import { useInfiniteQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import styles from "../../components/AccessRows.module.css";
import { Button } from "../../components/Button.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { PlusIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import type { Agent } from "../../lib/wire.ts";
import { keysQuery } from "./api.ts";
import { KeyDialog, type OpenKeyDialog } from "./KeyDialog.tsx";
import { KeyRow } from "./KeyRow.tsx";

export function Keys({ agent }: { agent: Agent }): ReactNode {
  const query = useInfiniteQuery(keysQuery(agent.id));
  const [open, setOpen] = useState<OpenKeyDialog>();
  const keys = query.data?.pages.flatMap((page) => page.items) ?? [];
  const isArchived = agent.status === "archived";
  return (
    <Section
      flush
      title="API keys"
      hint="All keys of an agent share its limits. A new or rotated key does not reset the amount spent."
      actions={
        !isArchived && (
          <Button
            onClick={() => {
              setOpen({ kind: "create" });
            }}
          >
            <PlusIcon size={16} />
            New key
          </Button>
        )
      }
    >
      <QueryStatus query={query} what="keys" failed="Keys could not be loaded">
        <Skeleton shape="row" count={2} />
      </QueryStatus>
      {query.isSuccess && keys.length === 0 && (
        <EmptyState title="No keys">
          Create a key so that your agent can use this wallet.
        </EmptyState>
      )}
      <ul className={styles.list}>
        {keys.map((key) => (
          <KeyRow
            key={key.id}
            apiKey={key}
            isReadOnly={isArchived}
            onRotate={() => {
              setOpen({ kind: "rotate", key });
            }}
            onRevoke={() => {
              setOpen({ kind: "revoke", key });
            }}
          />
        ))}
      </ul>
      <LoadMore query={query} what="keys" />
      <KeyDialog agent={agent} open={open} onOpen={setOpen} />
    </Section>
  );
}

import { Button, EmptyState } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { PlusIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import type { Agent } from "../../lib/wire.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { keysQuery } from "./api.ts";
import { KeyDialog, type OpenKeyDialog } from "./KeyDialog.tsx";
import { KeyRow } from "./KeyRow.tsx";

export function Keys({ agent }: { agent: Agent }): ReactNode {
  const query = useInfiniteQuery(keysQuery(agent.id));
  const [open, setOpen] = useState<OpenKeyDialog>();
  const isArchived = agent.status === "archived";
  return (
    <Section
      flush
      title="API keys"
      hint="All keys of an agent share its limits. A new or rotated key does not reset the amount spent."
      actions={
        !isArchived && (
          <OwnerOnly>
            <Button
              onClick={() => {
                setOpen({ kind: "create" });
              }}
            >
              <PlusIcon size={16} />
              New key
            </Button>
          </OwnerOnly>
        )
      }
    >
      <List
        query={query}
        what="keys"
        failed="Keys could not be loaded"
        placeholders={2}
        empty={
          <EmptyState
            title="No keys"
            description="Create a key so that your agent can use this wallet."
          />
        }
      >
        {(key) => (
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
        )}
      </List>
      <KeyDialog agent={agent} open={open} onOpen={setOpen} />
    </Section>
  );
}

import { Badge, Button, EmptyState } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { AccessRow } from "../../components/AccessRow.tsx";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { CopyText } from "../../components/CopyText.tsx";
import { Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent, Connection } from "../../lib/wire.ts";
import { useInfo } from "../../shared/info.ts";
import { NotForViewers } from "../../shared/session/OwnerOnly.tsx";
import { connectionsQuery, endConnection } from "./api.ts";

/** Programs that use this agent over OAuth; ending a connection needs no wallet. */
export function Connections({ agent }: { agent: Agent }): ReactNode {
  const query = useInfiniteQuery(connectionsQuery(agent.id));
  const base = useInfo()?.publicUrl ?? globalThis.location.origin;
  const [ending, setEnding] = useState<Connection>();
  const close = (): void => {
    setEnding(undefined);
  };
  const end = useMutation({
    mutationFn: () => endConnection(agent.id, ending?.id ?? ""),
    onSuccess: () => {
      notifications.show({ message: "Connection ended." });
      close();
    },
    onSettled: invalidate.afterConnections,
  });
  return (
    <Section
      flush
      title="Connected programs"
      hint="Programs that you connected without a key. They share the agent's limits and cannot change its rules."
    >
      <List
        query={query}
        what="connections"
        failed="Connections could not be loaded"
        placeholders={1}
        empty={
          <EmptyState
            title="No connected programs"
            description="Add this MCP server in Claude, ChatGPT, Cursor, VS Code or another client. It opens a page here, where you choose this agent. You copy no key."
          >
            <CopyText value={`${base}/mcp`} what="the address of the MCP server" />
          </EmptyState>
        }
      >
        {(connection) => (
          <ConnectionRow
            key={connection.id}
            connection={connection}
            onEnd={() => {
              end.reset();
              setEnding(connection);
            }}
          />
        )}
      </List>
      <ConfirmDialog
        opened={ending !== undefined}
        disabled={ending === undefined}
        title="End the connection"
        mutation={end}
        failed="The connection was not ended"
        confirm="End connection"
        pending="Ending…"
        onCancel={close}
      >
        {ending?.thirdParty.name} loses access immediately. To reconnect, it has to ask you again.
      </ConfirmDialog>
    </Section>
  );
}

const STATUS = {
  active: <Badge color="green">Connected</Badge>,
  expired: <Badge color="red">Expired</Badge>,
  revoked: <Badge>Ended</Badge>,
};

function ConnectionRow({
  connection,
  onEnd,
}: {
  connection: Connection;
  onEnd: () => void;
}): ReactNode {
  const { status, thirdParty, place, createdAt, lastUsedAt, expiresAt } = connection;
  return (
    <AccessRow
      name={thirdParty.name}
      detail={<span>{place}</span>}
      badge={STATUS[status]}
      times={
        <>
          <span>
            <TimeAgo label="Since" iso={createdAt} />
          </span>{" "}
          <span>
            <TimeAgo label="Used" iso={lastUsedAt} none="Never used" />
          </span>{" "}
          {status === "active" && (
            <span>
              <TimeUntil label="Ends" iso={expiresAt} />
            </span>
          )}
        </>
      }
    >
      {status === "active" && (
        <NotForViewers>
          <Button size="xs" onClick={onEnd}>
            End<span className="sr-only"> the connection of {thirdParty.name}</span>
          </Button>
        </NotForViewers>
      )}
    </AccessRow>
  );
}

import { notifications } from "@mantine/notifications";
import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import styles from "../../components/AccessRows.module.css";
import { Badge } from "../../components/Badge.tsx";
import { Button } from "../../components/Button.tsx";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { CopyText } from "../../components/CopyText.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { Section } from "../../components/Layout.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent, Connection } from "../../lib/wire.ts";
import { useInfo } from "../../shared/info.ts";
import { connectionsQuery, endConnection } from "./api.ts";

/** Programs that use this agent over OAuth; ending a connection needs no wallet. */
export function Connections({ agent }: { agent: Agent }): ReactNode {
  const query = useInfiniteQuery(connectionsQuery(agent.id));
  const [ending, setEnding] = useState<Connection>();
  const connections = query.data?.pages.flatMap((page) => page.items) ?? [];
  return (
    <Section
      flush
      title="Connected programs"
      hint="Programs that you connected without a key. They share the agent's limits and cannot change its rules."
    >
      <QueryStatus query={query} what="connections" failed="Connections could not be loaded">
        <Skeleton shape="row" count={1} />
      </QueryStatus>
      {query.isSuccess && connections.length === 0 && <HowTo />}
      <ul className={styles.list}>
        {connections.map((connection) => (
          <ConnectionRow
            key={connection.id}
            connection={connection}
            onEnd={() => {
              setEnding(connection);
            }}
          />
        ))}
      </ul>
      <LoadMore query={query} what="connections" />
      <EndDialog
        agentId={agent.id}
        connection={ending}
        onDone={() => {
          setEnding(undefined);
        }}
      />
    </Section>
  );
}

function HowTo(): ReactNode {
  const base = useInfo()?.publicUrl ?? globalThis.location.origin;
  return (
    <EmptyState title="No connected programs">
      Add this MCP server in Claude, ChatGPT, Cursor, VS Code or another client. It opens a page
      here, where you choose this agent. You copy no key.
      <CopyText value={`${base}/mcp`} what="the address of the MCP server" />
    </EmptyState>
  );
}

function ConnectionRow({
  connection,
  onEnd,
}: {
  connection: Connection;
  onEnd: () => void;
}): ReactNode {
  const { status, thirdParty, place } = connection;
  return (
    <li className={styles.row}>
      <div className={styles.what}>
        <strong>{thirdParty.name}</strong>
        <span>{place}</span>
      </div>
      <div>
        {status === "revoked" ? (
          <Badge>Ended</Badge>
        ) : status === "expired" ? (
          <Badge tone="bad">Expired</Badge>
        ) : (
          <Badge tone="ok">Connected</Badge>
        )}
      </div>
      <div className={styles.times}>
        <span>
          Since <TimeAgo iso={connection.createdAt} />
        </span>
        <span>
          {connection.lastUsedAt === null ? (
            "Never used"
          ) : (
            <>
              Used <TimeAgo iso={connection.lastUsedAt} />
            </>
          )}
        </span>
        {status === "active" && connection.expiresAt !== null && (
          <span>
            Ends <TimeUntil iso={connection.expiresAt} />
          </span>
        )}
      </div>
      <div className={styles.actions}>
        {status === "active" && (
          <Button size="small" onClick={onEnd}>
            End<span className="sr-only"> the connection of {thirdParty.name}</span>
          </Button>
        )}
      </div>
    </li>
  );
}

function EndDialog({
  agentId,
  connection,
  onDone,
}: {
  agentId: string;
  connection: Connection | undefined;
  onDone: () => void;
}): ReactNode {
  const end = useMutation({
    mutationFn: (id: string) => endConnection(agentId, id),
    onSuccess: () => {
      notifications.show({ message: "Connection ended." });
      onDone();
    },
    onSettled: invalidate.afterConnections,
  });
  return (
    <ConfirmDialog
      opened={connection !== undefined}
      title="End the connection"
      confirm="End connection"
      pending={end.isPending && "Ending…"}
      failed="The connection was not ended"
      error={end.error}
      onCancel={() => {
        end.reset();
        onDone();
      }}
      onConfirm={() => {
        if (connection) end.mutate(connection.id);
      }}
    >
      {connection?.thirdParty.name} loses access immediately. To reconnect, it has to ask you again.
    </ConfirmDialog>
  );
}

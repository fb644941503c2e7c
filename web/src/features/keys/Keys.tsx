import { useInfiniteQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { PlusIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import type { Agent, ApiKey, CreatedKey } from "../../lib/wire.ts";
import { keysQuery } from "./api.ts";
import { CreateKeyForm, RevokeKeyForm, RotateKeyForm } from "./KeyForms.tsx";
import { KeyReveal } from "./KeyReveal.tsx";
import { KeyRow } from "./KeyRow.tsx";
import styles from "./Keys.module.css";

type Open =
  | { kind: "create" }
  | { kind: "rotate" | "revoke"; key: ApiKey }
  | { kind: "reveal"; apiKey: string }
  | undefined;

const TITLES = {
  create: "New API key",
  rotate: "Rotate the key",
  revoke: "Revoke the key",
  reveal: "Your new key",
};

export function Keys({ agent }: { agent: Agent }): ReactNode {
  const query = useInfiniteQuery(keysQuery(agent.id));
  const [open, setOpen] = useState<Open>();
  const keys = query.data?.pages.flatMap((page) => page.items) ?? [];
  const close = (): void => {
    setOpen(undefined);
  };
  const reveal = ({ apiKey }: CreatedKey): void => {
    setOpen({ kind: "reveal", apiKey });
  };
  const isArchived = agent.status === "archived";
  return (
    <Section
      flush
      title="API keys"
      hint="All keys of an agent share its limits. A new key or a rotation does not reset what was spent."
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
      {query.error && (
        <ErrorNotice
          title="Keys could not be loaded"
          error={query.error}
          onRetry={() => void query.refetch()}
        />
      )}
      {query.isPending && (
        <Loading label="keys">
          <Skeleton shape="row" count={2} />
        </Loading>
      )}
      {query.isSuccess && keys.length === 0 && (
        <EmptyState title="No keys">Without a key nobody can spend for this agent.</EmptyState>
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
      <LoadMore
        what="keys"
        hasMore={query.hasNextPage}
        isLoading={query.isFetchingNextPage}
        onMore={() => void query.fetchNextPage()}
      />
      <Dialog
        opened={open !== undefined}
        onClose={close}
        closable={open?.kind !== "reveal"}
        title={open ? TITLES[open.kind] : ""}
        size={open?.kind === "reveal" ? "lg" : "md"}
      >
        {open?.kind === "create" && (
          <CreateKeyForm agentId={agent.id} onCreated={reveal} onCancel={close} />
        )}
        {open?.kind === "rotate" && (
          <RotateKeyForm agentId={agent.id} apiKey={open.key} onCreated={reveal} onCancel={close} />
        )}
        {open?.kind === "revoke" && (
          <RevokeKeyForm agentId={agent.id} apiKey={open.key} onDone={close} />
        )}
        {open?.kind === "reveal" && (
          <KeyReveal apiKey={open.apiKey} agentName={agent.name} doneLabel="Done" onDone={close} />
        )}
      </Dialog>
    </Section>
  );
}

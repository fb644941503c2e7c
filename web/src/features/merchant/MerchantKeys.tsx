import { Checkbox, TextInput } from "@mantine/core";
import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import styles from "../../components/AccessRows.module.css";
import { Badge } from "../../components/Badge.tsx";
import { Button } from "../../components/Button.tsx";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { PlusIcon } from "../../components/icons.tsx";
import { Note, Row, Section, Stack } from "../../components/Layout.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Merchant, MerchantKey } from "../../lib/wire.ts";
import { createMerchantKey, merchantKeysQuery, revokeMerchantKey } from "./api.ts";

export function MerchantKeys({ merchant }: { merchant: Merchant | undefined }): ReactNode {
  const query = useInfiniteQuery(merchantKeysQuery);
  const [isMaking, setMaking] = useState(false);
  const [revoking, setRevoking] = useState<MerchantKey>();
  const keys = query.data?.pages.flatMap((page) => page.items) ?? [];
  const revoke = useMutation({
    mutationFn: revokeMerchantKey,
    onSuccess: () => {
      setRevoking(undefined);
    },
    onSettled: invalidate.afterMerchantKeys,
  });
  return (
    <Section
      flush
      title="Facilitator keys"
      hint={merchant && hintOf(merchant)}
      actions={
        <Button
          onClick={() => {
            setMaking(true);
          }}
        >
          <PlusIcon size={16} />
          New key
        </Button>
      }
    >
      <QueryStatus query={query} what="keys" failed="Keys could not be loaded">
        <Skeleton shape="row" count={2} />
      </QueryStatus>
      {query.isSuccess && keys.length === 0 && (
        <EmptyState title="No keys">
          Your API sends the key as <code>Authorization: Bearer</code> with verify and settle
          requests.
        </EmptyState>
      )}
      <ul className={styles.list}>
        {keys.map((key) => (
          <KeyRow
            key={key.id}
            merchantKey={key}
            onRevoke={() => {
              revoke.reset();
              setRevoking(key);
            }}
          />
        ))}
      </ul>
      <LoadMore query={query} what="keys" />
      {isMaking && (
        <NewKey
          onClose={() => {
            setMaking(false);
          }}
        />
      )}
      <ConfirmDialog
        opened={revoking !== undefined}
        title="Revoke the key"
        confirm="Revoke key"
        pending={revoke.isPending && "Revoking…"}
        failed="The key was not revoked"
        error={revoke.error}
        onCancel={() => {
          setRevoking(undefined);
        }}
        onConfirm={() => {
          if (revoking) revoke.mutate(revoking.id);
        }}
      >
        The key {revoking?.hint} stops working immediately. This cannot be undone.
      </ConfirmDialog>
    </Section>
  );
}

function hintOf({ admitted, needsKey }: Merchant): string {
  if (admitted)
    return "The operator admitted your wallet. With a key, your payments use the merchants' gas budget.";
  return needsKey
    ? "This facilitator settles for admitted merchants only. Ask its operator to admit your wallet."
    : "You do not need a key. A key only names your API; its payments use the shared gas budget.";
}

function KeyRow({
  merchantKey,
  onRevoke,
}: {
  merchantKey: MerchantKey;
  onRevoke: () => void;
}): ReactNode {
  const { label, hint, lastUsedAt, revokedAt } = merchantKey;
  const name = label === "" ? "Unnamed key" : label;
  return (
    <li className={styles.row}>
      <div className={styles.what}>
        <strong>{name}</strong>
        <code>{hint}</code>
      </div>
      <div>{revokedAt === null ? <Badge tone="ok">Active</Badge> : <Badge>Revoked</Badge>}</div>
      <div className={styles.times}>
        {lastUsedAt === null ? (
          <span>Never used</span>
        ) : (
          <span>
            Used <TimeAgo iso={lastUsedAt} />
          </span>
        )}
      </div>
      <div className={styles.actions}>
        {revokedAt === null && (
          <Button size="small" onClick={onRevoke}>
            Revoke<span className="sr-only"> {name}</span>
          </Button>
        )}
      </div>
    </li>
  );
}

/** The only time that the browser has the key. It is never put into a URL, a store or a log. */
function NewKey({ onClose }: { onClose: () => void }): ReactNode {
  const [label, setLabel] = useState("");
  const [isSaved, setSaved] = useState(false);
  const create = useMutation({
    mutationFn: createMerchantKey,
    onSettled: invalidate.afterMerchantKeys,
    // The response contains the key, which must not stay in memory after the dialog.
    gcTime: 0,
  });
  if (create.data)
    return (
      <Dialog opened onClose={onClose} closable={false} title="Your new key">
        <Stack gap={4}>
          <Note tone="warn">
            <strong>This key is shown once.</strong> Purser keeps only its hash.
          </Note>
          <CodeBlock label="Facilitator key" code={create.data.apiKey} />
          <Checkbox
            label="I saved the key"
            checked={isSaved}
            onChange={(event) => {
              setSaved(event.currentTarget.checked);
            }}
          />
          <Row end>
            <Button variant="primary" disabled={!isSaved} onClick={onClose}>
              Done
            </Button>
          </Row>
        </Stack>
      </Dialog>
    );
  return (
    <Dialog opened onClose={onClose} title="New facilitator key">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (!create.isPending) create.mutate(label.trim());
        }}
      >
        <Stack gap={4}>
          <TextInput
            label="Label"
            description="Where you will use this key"
            placeholder="production"
            maxLength={80}
            autoComplete="off"
            data-autofocus
            value={label}
            onChange={(event) => {
              setLabel(event.currentTarget.value);
            }}
          />
          {create.error && <ErrorNotice title="The key was not created" error={create.error} />}
          <Row end>
            <Button onClick={onClose}>Cancel</Button>
            <Button type="submit" variant="primary" pending={create.isPending && "Creating…"}>
              Create key
            </Button>
          </Row>
        </Stack>
      </form>
    </Dialog>
  );
}

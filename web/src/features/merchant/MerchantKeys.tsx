import { Badge, Button, EmptyState, Stack, TextInput } from "@mantine/core";
import { useDisclosure, useInputState } from "@mantine/hooks";
import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { AccessRow } from "../../components/AccessRow.tsx";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { PlusIcon } from "../../components/icons.tsx";
import { Note, Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { RequestForm } from "../../components/RequestForm.tsx";
import { SavedGate } from "../../components/SavedGate.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Merchant, MerchantKey } from "../../lib/wire.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { createMerchantKey, merchantKeysQuery, revokeMerchantKey } from "./api.ts";

export function MerchantKeys({ merchant }: { merchant: Merchant | undefined }): ReactNode {
  const query = useInfiniteQuery(merchantKeysQuery);
  const [isMaking, making] = useDisclosure();
  const [revoking, setRevoking] = useState<MerchantKey>();
  const close = (): void => {
    setRevoking(undefined);
  };
  const revoke = useMutation({
    mutationFn: () => revokeMerchantKey(revoking?.id ?? ""),
    onSuccess: close,
    onSettled: invalidate.afterMerchantKeys,
  });
  return (
    <Section
      flush
      title="Facilitator keys"
      hint={merchant && hintOf(merchant)}
      actions={
        <OwnerOnly>
          <Button onClick={making.open}>
            <PlusIcon size={16} />
            New key
          </Button>
        </OwnerOnly>
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
            description={
              <>
                Your API sends the key as <code>Authorization: Bearer</code> with verify and settle
                requests.
              </>
            }
          />
        }
      >
        {(key) => (
          <KeyRow
            key={key.id}
            merchantKey={key}
            onRevoke={() => {
              revoke.reset();
              setRevoking(key);
            }}
          />
        )}
      </List>
      {isMaking && <NewKey onClose={making.close} />}
      <ConfirmDialog
        opened={revoking !== undefined}
        disabled={revoking === undefined}
        title="Revoke the key"
        mutation={revoke}
        failed="The key was not revoked"
        confirm="Revoke key"
        pending="Revoking…"
        onCancel={close}
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
    <AccessRow
      name={name}
      detail={<code>{hint}</code>}
      badge={revokedAt === null ? <Badge color="green">Active</Badge> : <Badge>Revoked</Badge>}
      times={<TimeAgo label="Used" iso={lastUsedAt} none="Never used" />}
    >
      {revokedAt === null && (
        <Button size="xs" onClick={onRevoke}>
          Revoke<span className="sr-only"> {name}</span>
        </Button>
      )}
    </AccessRow>
  );
}

/** The only time that the browser has the key. It is never put into a URL, a store or a log. */
function NewKey({ onClose }: { onClose: () => void }): ReactNode {
  const [label, setLabel] = useInputState("");
  const create = useMutation({
    mutationFn: () => createMerchantKey(label.trim()),
    onSettled: invalidate.afterMerchantKeys,
    // The response contains the key, which must not stay in memory after the dialog.
    gcTime: 0,
  });
  // Closing now would lose the key that is being created.
  const close = (): void => {
    if (!create.isPending) onClose();
  };
  if (create.data)
    return (
      <Dialog opened onClose={onClose} closable={false} title="Your new key">
        <Stack>
          <Note color="yellow">
            <strong>This key is shown once.</strong> Purser keeps only its hash.
          </Note>
          <CodeBlock label="Facilitator key" code={create.data.apiKey} />
          <SavedGate what="key" onDone={onClose} />
        </Stack>
      </Dialog>
    );
  return (
    <Dialog opened onClose={close} closable={!create.isPending} title="New facilitator key">
      <RequestForm
        mutation={create}
        failed="The key was not created"
        confirm="Create key"
        pending="Creating…"
        onCancel={close}
      >
        <TextInput
          label="Label"
          description="Where you will use this key"
          placeholder="production"
          maxLength={80}
          data-autofocus
          value={label}
          onChange={setLabel}
        />
      </RequestForm>
    </Dialog>
  );
}

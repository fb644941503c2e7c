import { Group, Text, TextInput } from "@mantine/core";
import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { Fields, Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { RequestForm } from "../../components/RequestForm.tsx";
import { toastFailure } from "../../components/toast.ts";
import { shortAddress } from "../../lib/address.ts";
import { NotSigned } from "../../lib/orders/signing.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { DeniedPayee } from "../../lib/wire.ts";
import { useNetwork } from "../../shared/info.ts";
import { NotForViewers, OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { useOwner } from "../../shared/session/session-context.ts";
import { allowAgain, deniedQuery, denyPayee, nameOf, readWhich } from "./api.ts";

/** What none of the owner's agents pays. */
export function NeverPay(): ReactNode {
  const query = useInfiniteQuery(deniedQuery());
  return (
    <>
      <Section
        title="Never pay"
        hint="None of your agents pays these, whatever its rules or an approval allow. Adding one applies at once; removing one needs your signature."
      >
        <NotForViewers>
          <Add />
        </NotForViewers>
      </Section>
      <Section flush title="Denied payees">
        <List
          query={query}
          what="denied payees"
          failed="The denied payees could not be loaded"
          placeholders={1}
          empty={
            <Text c="dimmed" px="lg" py="md">
              You deny no payee.
            </Text>
          }
        >
          {(denied) => <Row key={denied.id} denied={denied} />}
        </List>
      </Section>
    </>
  );
}

function Add(): ReactNode {
  const [text, setText] = useState("");
  const [note, setNote] = useState("");
  const [problem, setProblem] = useState<string>();
  const add = useMutation({
    mutationFn: async () => {
      const read = await readWhich(text);
      setProblem(read.ok ? undefined : read.reason);
      return read.ok ? denyPayee(read.which, note) : undefined;
    },
    onSuccess: (added) => {
      if (!added) return;
      setText("");
      setNote("");
    },
    onSettled: invalidate.afterDenied,
  });
  return (
    <RequestForm
      mutation={add}
      failed="It was not added"
      confirm="Never pay this"
      pending="Adding…"
      variant="default"
      disabled={text.trim() === ""}
    >
      <Fields>
        <TextInput
          label="Address or website"
          placeholder="0x… or shop.example.com"
          value={text}
          error={problem}
          onChange={(event) => {
            setText(event.currentTarget.value);
            setProblem(undefined);
          }}
        />
        <TextInput
          label="Note"
          description="Optional. Only you see it."
          inputWrapperOrder={["label", "input", "description", "error"]}
          maxLength={200}
          value={note}
          onChange={(event) => {
            setNote(event.currentTarget.value);
          }}
        />
      </Fields>
    </RequestForm>
  );
}

function Row({ denied }: { denied: DeniedPayee }): ReactNode {
  const { address: owner } = useOwner();
  const network = useNetwork();
  const { payee, readableSite, note, addedBy, createdAt } = denied;
  const name = nameOf(denied);
  const remove = useMutation({
    mutationFn: () => allowAgain({ owner, denied, network }),
    onError: (error) => {
      if (!(error instanceof NotSigned)) toastFailure("It was not removed")(error);
    },
    onSettled: invalidate.afterDenied,
  });
  const by = addedBy.toLowerCase() === owner.toLowerCase() ? "" : ` by ${shortAddress(addedBy)}`;
  return (
    <li className="list-row">
      <Group justify="space-between" wrap="nowrap" gap="md">
        <div>
          {payee === null ? (
            <Text component="div" fw={550} style={{ overflowWrap: "anywhere" }}>
              {name}
              {readableSite !== null && ` (${readableSite})`}
            </Text>
          ) : (
            <Address value={payee} />
          )}
          <Text c="dimmed" size="sm">
            {note !== "" && `${note} · `}
            added <TimeAgo iso={createdAt} />
            {by}
          </Text>
        </div>
        <OwnerOnly>
          <MutationButton size="xs" mutation={remove} pending="Removing…">
            Remove<span className="sr-only"> {name}</span>
          </MutationButton>
        </OwnerOnly>
      </Group>
    </li>
  );
}

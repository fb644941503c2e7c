import { Group, Stack, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note, Section } from "../../components/Layout.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { checkAddress } from "../../lib/address.ts";
import { formatDateTime } from "../../lib/time.ts";
import { payoutQuery } from "../../shared/session/api.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { useOwner } from "../../shared/session/session-context.ts";
import { useNamePayout } from "./use-passkeys.ts";

/** Where an owner without a wallet withdraws to. */
export function PayoutAddress(): ReactNode {
  const { member } = useOwner();
  const payout = useQuery(payoutQuery);
  const { address, since, next } = payout.data ?? { address: null, since: null, next: null };
  return (
    <Section
      title="Payout address"
      hint={`The only address to which ${member ? "the team" : "you"} can withdraw, such as ${member ? "its" : "your"} account at an exchange. A change waits 24 hours, and you are notified of it.`}
    >
      <Stack gap="sm">
        <QueryStatus
          query={payout}
          what="the payout address"
          failed="The payout address could not be loaded"
        >
          <Skeleton shape="row" count={1} />
        </QueryStatus>
        {address !== null && <Address value={address} full />}
        {since !== null && (
          <Text c="dimmed" size="sm">
            In force since {formatDateTime(since)}.
          </Text>
        )}
        {next !== null && (
          <Note color="yellow">
            <p>
              From {formatDateTime(next.from)}: <Address value={next.address} />. If you did not
              change it, name the current address again.
            </p>
          </Note>
        )}
        {payout.isSuccess && (
          <OwnerOnly>
            <NamePayout current={address} />
          </OwnerOnly>
        )}
      </Stack>
    </Section>
  );
}

function NamePayout({ current }: { current: string | null }): ReactNode {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<string>();
  const name = useNamePayout(current);
  const save = async (): Promise<void> => {
    if (name.isPending) return;
    const check = await checkAddress(text);
    if (!check.ok) setProblem(check.reason);
    else
      name.mutate(check.address, {
        onSuccess: () => {
          setText("");
        },
      });
  };
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <Stack gap="sm">
        <TextInput
          label={current === null ? "Address that receives your withdrawals" : "Another address"}
          description="USDC that is sent to a wrong address is lost. Copy it from where you receive USDC."
          placeholder="0x…"
          value={text}
          error={problem}
          onChange={(event) => {
            setText(event.currentTarget.value);
            setProblem(undefined);
          }}
        />
        {name.isError && (
          <ErrorNotice title="The payout address was not changed" error={name.error} />
        )}
        <Group>
          <PendingButton type="submit" pending={name.isPending && "Confirm on your device…"}>
            {current === null ? "Sign and name it" : "Sign the change"}
          </PendingButton>
        </Group>
      </Stack>
    </form>
  );
}

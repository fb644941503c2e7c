import { Group, Stack, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { CopyText } from "../../components/CopyText.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Section } from "../../components/Layout.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { checkAddress } from "../../lib/address.ts";
import { recoveryQuery } from "../../shared/session/api.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { hasWallet, useOwner, whose } from "../../shared/session/session-context.ts";
import { MoveOwner } from "./MoveOwner.tsx";
import { useNameSecond } from "./use-recovery.ts";

/** The recovery wallet: add it, remove it, or make it the owner. */
export function Recovery(): ReactNode {
  const session = useOwner();
  const { address, second: actingAs, member } = session;
  const lost = member ? "keys" : hasWallet(session) ? "wallet" : "passkey";
  const recovery = useQuery(recoveryQuery);
  const second = recovery.data?.second ?? null;
  return (
    <Section
      title="Recovery wallet"
      hint={`Use it if you lose your ${lost}. It can pause agents, lower limits and withdraw to ${whose(session)} address; it cannot raise limits or withdraw elsewhere.${member ? "" : " Making it the owner needs both signatures."}`}
    >
      <Stack gap="lg">
        <QueryStatus
          query={recovery}
          what="the recovery wallet"
          failed="The recovery wallet could not be loaded"
        >
          <Skeleton shape="row" count={1} />
        </QueryStatus>
        {second && <Address value={second.address} full />}
        {second && !hasWallet(session) && (
          <p>
            To sign in with it, enter {whose(session)} account number (it is no address for money):{" "}
            <CopyText value={address} what="the account number" />
          </p>
        )}
        {recovery.isSuccess && actingAs === null && (
          <OwnerOnly>
            <NameSecond owner={address} current={second?.address ?? null} />
          </OwnerOnly>
        )}
        {second && !member && <MoveOwner owner={address} second={second.address} />}
      </Stack>
    </Section>
  );
}

function NameSecond({ owner, current }: { owner: string; current: string | null }): ReactNode {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState<string>();
  const name = useNameSecond(owner, current);
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
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <Stack gap="sm">
        <TextInput
          label={
            current === null ? "Address of your recovery wallet" : "Replace it with another address"
          }
          description="That wallet signs first, then you. It must be within reach, in this browser."
          placeholder="0x…"
          value={text}
          error={problem}
          onChange={(event) => {
            setText(event.currentTarget.value);
            setProblem(undefined);
          }}
        />
        {name.isError && (
          <ErrorNotice title="The recovery wallet was not changed" error={name.error} />
        )}
        <Group>
          <PendingButton type="submit" pending={name.isPending && "Waiting for your signature…"}>
            Add recovery wallet
          </PendingButton>
          {current !== null && (
            <PendingButton
              variant="subtle"
              pending={name.isPending && "Revoke"}
              onClick={() => {
                name.mutate(null);
              }}
            >
              Revoke
            </PendingButton>
          )}
        </Group>
      </Stack>
    </form>
  );
}

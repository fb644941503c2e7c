import { Badge, Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Changes } from "../../components/Changes.tsx";
import { CopyButton } from "../../components/CopyButton.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { KeyValues, Note } from "../../components/Layout.tsx";
import { MutationButton, PendingButton } from "../../components/PendingButton.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { toSignOf } from "../../lib/orders/waiting.ts";
import { plural } from "../../lib/plural.ts";
import type { WaitingOrder } from "../../lib/wire.ts";
import { NotForViewers, useRights } from "../../shared/session/OwnerOnly.tsx";
import { useOwner } from "../../shared/session/session-context.ts";
import { ToSign } from "../../shared/signing/ToSign.tsx";
import { readingQuery } from "./api.ts";
import { teamQuery } from "./queries.ts";
import styles from "./Teams.module.css";
import { type Outcome, useDecide } from "./use-decide.ts";

interface WaitingDetailsProps {
  waiting: WaitingOrder;
  onDone: (outcome: Outcome) => void;
}

/** What an order changes, who has signed it, and the buttons. Opening it signs nothing. */
export function WaitingDetails({ waiting, onDone }: WaitingDetailsProps): ReactNode {
  const reading = useQuery(readingQuery(waiting));
  return (
    <Stack gap="lg">
      <QueryStatus query={reading} what="the order" failed="The order could not be read">
        <Skeleton count={4} />
      </QueryStatus>
      {reading.data && (
        <>
          <Stack gap="xs">
            <h3>{reading.data.title}</h3>
            <Group>
              <Progress waiting={waiting} />
            </Group>
          </Stack>
          <Changes changes={reading.data.changes} />
          <Decide waiting={waiting} onDone={onDone} />
        </>
      )}
      <Facts waiting={waiting} />
      <details>
        <summary>Every field that is signed</summary>
        <ToSign typedData={toSignOf(waiting)} />
      </details>
    </Stack>
  );
}

export function Progress({ waiting }: { waiting: WaitingOrder }): ReactNode {
  const { isComplete, canSign, needed, collected } = waiting;
  if (isComplete) return <Badge color="green">All have signed</Badge>;
  return (
    <>
      {canSign && <Badge color="yellow">Your signature is missing</Badge>}{" "}
      <Badge>{`${collected.length} of ${plural(needed, "signature")}`}</Badge>
    </>
  );
}

function Decide({ waiting, onDone }: WaitingDetailsProps): ReactNode {
  const { member } = useOwner();
  const rights = useRights();
  const { sign, send, giveUp } = useDecide(waiting, onDone);
  const { isComplete, canSign, kind, team, by } = waiting;
  const maySend =
    member !== null && (rights === "all" || (rights === "tighten" && kind === "ApprovePayment"));
  const signLabel = member ? "Sign" : "Accept and sign";
  return (
    <Stack gap="sm">
      {sign.isError && <ErrorNotice title="You have not signed" error={sign.error} />}
      {send.isError && <ErrorNotice title="It was not carried out" error={send.error} />}
      {giveUp.isError && <ErrorNotice title="It was not withdrawn" error={giveUp.error} />}
      {!isComplete && sign.isSuccess && (
        <Note color="green">
          <p role="status">You have signed. It is carried out when the others have signed too.</p>
        </Note>
      )}
      {isComplete && !maySend && (
        <Note color="green">
          <p role="status">
            All have signed. An admin of {team.name} carries it out now
            {member === null &&
              ": ask one to open it. Then you choose the team in your account menu"}
            .
          </p>
        </Note>
      )}
      <Group>
        {canSign && (
          <PendingButton
            variant="filled"
            pending={
              (sign.isPending && "Waiting for your signature…") ||
              (send.isPending && "Carrying it out…")
            }
            onClick={() => {
              sign.mutate();
            }}
          >
            {signLabel}
          </PendingButton>
        )}
        {isComplete && maySend && (
          <PendingButton
            variant="filled"
            pending={send.isPending && "Carrying it out…"}
            onClick={() => {
              send.mutate(waiting);
            }}
          >
            Carry it out
          </PendingButton>
        )}
        {member && isSameAddress(by, member.address) && (
          <NotForViewers>
            <MutationButton mutation={giveUp} pending="Withdrawing…">
              Withdraw the order
            </MutationButton>
          </NotForViewers>
        )}
      </Group>
      {member && kind === "Members" && !isComplete && <InvitationLink id={waiting.id} />}
    </Stack>
  );
}

/** It contains nothing secret: who it names signs in, and sees the order. */
function InvitationLink({ id }: { id: string }): ReactNode {
  const url = `${globalThis.location.origin}/join?order=${encodeURIComponent(id)}`;
  return (
    <Note>
      <p>
        New members accept at <code className={styles.link}>{url}</code>{" "}
        <CopyButton value={url} what="invitation link" />
      </p>
      <Text c="dimmed" size="sm">
        Send it to them. It contains nothing secret; they sign in first.
      </Text>
    </Note>
  );
}

function Facts({ waiting }: { waiting: WaitingOrder }): ReactNode {
  const { by, collected, missing, createdAt, expiresAt, team, needed, isComplete } = waiting;
  const nameOf = useNames(waiting);
  const people = (addresses: readonly string[]): ReactNode =>
    addresses.length === 0
      ? "nobody yet"
      : addresses.map((address) => (
          <div key={address}>
            <Address value={address} label={nameOf(address)} copy={false} />
          </div>
        ));
  return (
    <KeyValues
      rows={[
        ["Team", team.name],
        ["Asked by", people([by])],
        ["Signed", people(collected)],
        missing.length > 0 && ["Must still accept", people(missing)],
        !isComplete && ["Missing", plural(needed - collected.length, "signature")],
        ["Asked", <TimeAgo key="asked" iso={createdAt} />],
        ["Ends", <TimeUntil key="ends" iso={expiresAt} />],
      ]}
    />
  );
}

/** Names from the list in force, and from the one that waits. */
function useNames({ kind, order }: WaitingOrder): (address: string) => string | undefined {
  const { member } = useOwner();
  const team = useQuery({ ...teamQuery, enabled: member !== null }).data;
  const ordered =
    kind === "Members" ? (order as { members: { name: string; account: string }[] }).members : [];
  return (address) =>
    team?.members.find((one) => isSameAddress(one.address, address))?.name ??
    ordered.find((one) => isSameAddress(one.account, address))?.name;
}

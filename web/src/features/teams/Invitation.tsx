import { Button, Group, Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import type { MembersOrder } from "../../../../packages/rules/src/orders.ts";
import { Note, Section } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { ApiError } from "../../lib/api.ts";
import type { WaitingOrder } from "../../lib/wire.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import { waitingOrderQuery } from "./queries.ts";
import { AskToBeAdded } from "./AskToBeAdded.tsx";
import { OwnTeams } from "./OwnTeams.tsx";
import { useActFor } from "./use-act-for.ts";
import { WaitingDetails } from "./WaitingDetails.tsx";

/** What an invitation's link opens: which team, which role, and who asked. Opening it accepts nothing. */
export function Invitation({ id }: { id: string }): ReactNode {
  const session = useOwner();
  if (session.member) return <ForOwnAccount id={id} />;
  return id === "" ? <NotFound isAsked={false} /> : <Loaded id={id} />;
}

function Loaded({ id }: { id: string }): ReactNode {
  const query = useQuery(waitingOrderQuery(id));
  if (query.error instanceof ApiError && query.error.status === 404) return <NotFound isAsked />;
  if (!query.data)
    return (
      <QueryStatus query={query} what="the invitation" failed="The invitation could not be loaded">
        <Skeleton shape="block" />
      </QueryStatus>
    );
  return <Asked waiting={query.data} />;
}

function Asked({ waiting }: { waiting: WaitingOrder }): ReactNode {
  const { address } = useOwner();
  const { members } = waiting.order as MembersOrder;
  const asker = members.find(({ account }) => isSameAddress(account, waiting.by))?.name;
  const self = members.find(({ account }) => isSameAddress(account, address));
  return (
    <Section
      title={`${asker ?? "A member"} asks you to join ${waiting.team.name} as ${self?.role ?? "member"}`}
      hint="To accept, sign the list of members below. To decline, do nothing: it ends by itself."
    >
      <WaitingDetails waiting={waiting} onDone={() => {}} />
    </Section>
  );
}

const NotFound = ({ isAsked }: { isAsked: boolean }): ReactNode => (
  <Stack gap="lg">
    {isAsked && (
      <Note>
        <p role="status">
          No invitation waits for this account. It may have ended or been carried out, or it names
          another account of yours.
        </p>
      </Note>
    )}
    <OwnTeams />
    <AskToBeAdded />
  </Stack>
);

function ForOwnAccount({ id }: { id: string }): ReactNode {
  const switchTo = useActFor();
  return (
    <Note color="yellow">
      <Group justify="space-between" gap="sm">
        <p>Invitations are for your own account, and you act for a team.</p>
        <Button
          size="xs"
          onClick={() => {
            switchTo.mutate({ owner: null, to: `/join?order=${encodeURIComponent(id)}` });
          }}
        >
          Use your own account
        </Button>
      </Group>
    </Note>
  );
}

import { NativeSelect, Stack, Text, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { AmountInput } from "../../components/AmountInput.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Fields, Note, Section } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { ApiError } from "../../lib/api.ts";
import { useDraft } from "../../lib/drafts.ts";
import { termsOfTeam } from "../../lib/orders/members.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { signerOf } from "../../lib/session.ts";
import type { Team } from "../../lib/wire.ts";
import { useNetwork } from "../../shared/info.ts";
import { useRights } from "../../shared/session/OwnerOnly.tsx";
import { useOwner } from "../../shared/session/session-context.ts";
import { AddMember } from "./AddMember.tsx";
import { changeMembers } from "./api.ts";
import { teamQuery, waitingQuery } from "./queries.ts";
import { MemberList } from "./MemberList.tsx";
import { checkDraft, draftOf, type MembersDraft, warningOf } from "./members.ts";
import { SaveMembers } from "./SaveMembers.tsx";

/** Who decides for the team that this session acts for. Admins change it as one draft. */
export function Members(): ReactNode {
  const query = useQuery(teamQuery);
  const isAdmin = useRights() === "all";
  const team = query.data;
  return (
    <>
      <QueryStatus query={query} what="members" failed="The members could not be loaded">
        <Skeleton shape="block" count={2} />
      </QueryStatus>
      {team && (isAdmin ? <EditMembers key={team.version} team={team} /> : <Shown team={team} />)}
    </>
  );
}

function Shown({ team }: { team: Team }): ReactNode {
  const { members, threshold, approvalAbove } = draftOf(team);
  return (
    <Section
      flush
      title="Members"
      hint={`${threshold} of the admins must sign what loosens rules, withdraws, or changes this list. One approver may allow one payment of at most ${approvalAbove} USDC.`}
    >
      <MemberList members={members} team={team} />
    </Section>
  );
}

function EditMembers({ team }: { team: Team }): ReactNode {
  const account = signerOf(useOwner());
  const network = useNetwork();
  const current = draftOf(team);
  // A draft belongs to the list that it changes.
  const [kept, setDraft, drop] = useDraft<MembersDraft>(`members-${team.owner}-${team.version}`);
  const draft = kept ?? current;
  const checked = checkDraft(draft, team, account);
  const save = useMutation({
    mutationFn: () => changeMembers(team, checked.terms, network),
    onSuccess: () => {
      drop();
      notifications.show({ message: "The members are changed." });
    },
    onError: (error) => {
      // The waiting order has it from now on.
      if (error instanceof ApiError && error.isWaiting) drop();
    },
    onSettled: invalidate.afterMembers,
  });
  /** From the newest draft: an address that was added is checked first, and meanwhile something else may change. */
  const change = (next: (before: MembersDraft) => Partial<MembersDraft>): void => {
    setDraft((before = current) => ({ ...before, ...next(before) }));
    if (save.isError) save.reset();
  };
  return (
    <Stack gap="lg">
      <WaitingList />
      <Warning text={checked.warning ?? warningOf(termsOfTeam(team))} />
      <Section flush title="Members">
        <MemberList
          members={draft.members}
          team={team}
          onChange={(members) => {
            change(() => ({ members }));
          }}
        />
      </Section>
      <AddMember
        members={draft.members}
        onAdd={(member) => {
          change(({ members }) => ({ members: [...members, member] }));
        }}
      />
      <Section title="How the team decides">
        <Fields>
          <TextInput
            label="Name of the team"
            maxLength={60}
            value={draft.name}
            onChange={(event) => {
              const name = event.currentTarget.value;
              change(() => ({ name }));
            }}
          />
          <NativeSelect
            label="Admins who must sign"
            description="What loosens rules, withdraws, or changes this list"
            value={String(draft.threshold)}
            data={choicesOf(draft)}
            onChange={(event) => {
              const threshold = Number(event.currentTarget.value);
              change(() => ({ threshold }));
            }}
          />
          <AmountInput
            label="One approver alone allows up to"
            description="One payment. Above it, as many members as admins must sign"
            value={draft.approvalAbove}
            onChange={(approvalAbove) => {
              change(() => ({ approvalAbove }));
            }}
          />
        </Fields>
      </Section>
      {save.isError && kept === undefined && (
        <ErrorNotice title="The members were not changed" error={save.error} />
      )}
      {checked.changes.length > 0 && (
        <SaveMembers
          checked={checked}
          save={save}
          onDiscard={() => {
            drop();
            save.reset();
          }}
        />
      )}
    </Stack>
  );
}

const choicesOf = ({ members, threshold }: MembersDraft): string[] => {
  const admins = members.filter(({ role }) => role === "admin").length;
  return Array.from({ length: Math.max(admins, threshold, 1) }, (_, index) => String(index + 1));
};

const Warning = ({ text }: { text: string | undefined }): ReactNode =>
  text !== undefined && (
    <Note color="yellow">
      <p role="status">
        {text} Add an admin, or <Link to="/settings">name a recovery wallet</Link>: it can stop the
        agents and withdraw to the payout address.
      </p>
    </Note>
  );

/** A list that waits already: another one that is sent first ends it. */
function WaitingList(): ReactNode {
  const waiting = useQuery(waitingQuery).data?.find(({ kind }) => kind === "Members");
  return (
    waiting && (
      <Note>
        <Text span size="sm">
          A new list of members waits for signatures.{" "}
          <Link to={`/waiting?order=${waiting.id}`}>Show it, with the link for new members</Link>
        </Text>
      </Note>
    )
  );
}

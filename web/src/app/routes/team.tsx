import { Stack } from "@mantine/core";
import { type ReactNode, useEffect } from "react";
import { PageHeader } from "../../components/PageHeader.tsx";
import { AskToBeAdded } from "../../features/teams/AskToBeAdded.tsx";
import { MakeTeam } from "../../features/teams/MakeTeam.tsx";
import { Members } from "../../features/teams/Members.tsx";
import { OwnTeams } from "../../features/teams/OwnTeams.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { teamOf, useOwner } from "../../shared/session/session-context.ts";

export default function TeamScreen(): ReactNode {
  const session = useOwner();
  // Somebody may have added this person meanwhile.
  useEffect(() => {
    void invalidate.session();
  }, []);
  if (session.member)
    return (
      <>
        <PageHeader
          title={teamOf(session)?.name ?? "Team"}
          lead="Who decides for this team, and how many must sign."
        />
        <Members />
      </>
    );
  return (
    <>
      <PageHeader title="Teams" lead="Accounts that several people share." />
      <OwnerOnly isScreen>
        <Stack gap="lg">
          <OwnTeams />
          <MakeTeam />
          <AskToBeAdded />
        </Stack>
      </OwnerOnly>
    </>
  );
}

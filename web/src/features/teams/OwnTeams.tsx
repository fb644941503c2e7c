import { Badge, Group, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Section } from "../../components/Layout.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { useOwner } from "../../shared/session/session-context.ts";
import { useActFor } from "./use-act-for.ts";

/** The teams that this person may act for. */
export function OwnTeams(): ReactNode {
  const { teams } = useOwner();
  const switchTo = useActFor();
  if (teams.length === 0) return null;
  return (
    <Section flush title="Your teams" hint="Acting for a team shows its agents instead of yours.">
      <ul>
        {teams.map(({ owner, name, role }) => (
          <li key={owner} className="list-row">
            <Group justify="space-between" gap="md">
              <Text component="div" fw={550}>
                {name} <Badge>{role}</Badge>
              </Text>
              <PendingButton
                size="xs"
                pending={switchTo.isPending && switchTo.variables.owner === owner && "Changing…"}
                onClick={() => {
                  switchTo.mutate({ owner, to: "/agents" });
                }}
              >
                Act for {name}
              </PendingButton>
            </Group>
          </li>
        ))}
      </ul>
    </Section>
  );
}

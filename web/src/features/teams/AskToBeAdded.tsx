import { Group, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { CopyButton } from "../../components/CopyButton.tsx";
import { Section } from "../../components/Layout.tsx";
import { hasWallet, useOwner } from "../../shared/session/session-context.ts";

/** What a person sends to an admin of a team, who cannot know it otherwise. */
export function AskToBeAdded(): ReactNode {
  const session = useOwner();
  const { address } = session;
  const text = `Please add me to your team in Purser. My account: ${address}`;
  return (
    <Section
      title="Ask to be added"
      hint="An admin of the team adds you by the address of your account, and then sends you a link. You accept by signing."
    >
      <Stack gap="sm">
        <p>
          Your account: <code>{address}</code>
        </p>
        {!hasWallet(session) && (
          <Text c="dimmed" size="sm">
            It names your account with passkeys. It is no address for money.
          </Text>
        )}
        <Group>
          <CopyButton value={address} what="address of your account" text="Copy the address" />
          <CopyButton value={text} what="request" text="Copy a request to send" />
        </Group>
      </Stack>
    </Section>
  );
}

import type { ReactNode } from "react";
import { useNavigate } from "react-router";
import { Address } from "../../components/Address.tsx";
import { PageHeader, Section, Stack } from "../../components/Layout.tsx";
import { useOwner, useSession } from "../../features/session/session-context.ts";
import { Sessions } from "../../features/settings/Sessions.tsx";
import { Theme } from "../../features/settings/Theme.tsx";

export default function SettingsScreen(): ReactNode {
  const { address } = useOwner();
  const { leave } = useSession();
  const navigate = useNavigate();
  return (
    <>
      <PageHeader title="Settings" />
      <Stack gap={5}>
        <Section title="Account" hint="Your wallet is your account.">
          <Address value={address} full />
        </Section>
        <Theme />
        <Sessions
          onSignOut={async () => {
            await leave();
            await navigate("/");
          }}
        />
      </Stack>
    </>
  );
}

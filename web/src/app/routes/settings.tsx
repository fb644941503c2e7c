import { Button, Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { Section } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { AskFor } from "../AskFor.tsx";
import { AuditChain } from "../../features/audit/AuditChain.tsx";
import { NeverPay } from "../../features/denied-payees/NeverPay.tsx";
import { PayoutAddress } from "../../features/passkeys/PayoutAddress.tsx";
import { WaysToSignIn } from "../../features/passkeys/WaysToSignIn.tsx";
import { Recovery } from "../../features/recovery/Recovery.tsx";
import { EndSessions } from "../../features/settings/EndSessions.tsx";
import { Sessions } from "../../features/settings/Sessions.tsx";
import { Theme } from "../../features/settings/Theme.tsx";
import { hasWallet, useOwner } from "../../shared/session/session-context.ts";
import { useLeave } from "../../shared/session/use-leave.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";

export default function SettingsScreen(): ReactNode {
  const session = useOwner();
  const leave = useLeave();
  return (
    <>
      <PageHeader title="Settings" />
      <Stack gap="lg">
        <EndSessions />
        <AskFor place="settings" />
        {!session.member && <WaysToSignIn />}
        {!hasWallet(session) && <PayoutAddress />}
        <Section
          title="Notifications"
          hint="The app lists everything that happened. It can also be sent to your phone, by e-mail or to a webhook."
        >
          <Group>
            <Button component={Link} to="/notifications">
              History
            </Button>
            {!session.member && (
              <Button component={Link} to="/notifications/devices">
                Devices
              </Button>
            )}
            <OwnerOnly>
              <Button component={Link} to="/notifications/email">
                E-mail
              </Button>
              <Button component={Link} to="/notifications/webhooks">
                Webhooks
              </Button>
            </OwnerOnly>
          </Group>
        </Section>
        <Section
          title="Team"
          hint={
            session.member
              ? "Who decides for this team, and how many must sign."
              : "An account that several people share, so that no single key can raise limits or withdraw."
          }
        >
          <Group>
            <Button component={Link} to="/team">
              {session.member ? "Members" : "Teams"}
            </Button>
          </Group>
        </Section>
        <NeverPay />
        <Theme />
        <Sessions onSignOut={leave} />
        <Recovery />
        <AuditChain />
      </Stack>
    </>
  );
}

import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { LinkButton } from "../../components/Button.tsx";
import { Row, Section, Stack } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { useOwner } from "../../shared/session/session-context.ts";
import { useLeave } from "../../shared/session/use-leave.ts";
import { AuditChain } from "../../features/audit/AuditChain.tsx";
import { Recovery } from "../../features/recovery/Recovery.tsx";
import { EndSessions } from "../../features/settings/EndSessions.tsx";
import { Sessions } from "../../features/settings/Sessions.tsx";
import { Theme } from "../../features/settings/Theme.tsx";

export default function SettingsScreen(): ReactNode {
  const { address } = useOwner();
  const leave = useLeave();
  return (
    <>
      <PageHeader title="Settings" />
      <Stack gap={5}>
        <EndSessions />
        <Section title="Account" hint="You sign in with this wallet.">
          <Address value={address} full />
        </Section>
        <Section
          title="Notifications"
          hint="Alerts by e-mail and webhook about your agents and about decisions that wait for you."
        >
          <Row>
            <LinkButton to="/notifications">History</LinkButton>
            <LinkButton to="/notifications/email">E-mail</LinkButton>
            <LinkButton to="/notifications/webhooks">Webhooks</LinkButton>
          </Row>
        </Section>
        <Theme />
        <Sessions onSignOut={leave} />
        <Recovery />
        <AuditChain />
      </Stack>
    </>
  );
}

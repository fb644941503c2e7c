import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Section, Stack } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { useOwner } from "../../shared/session/session-context.ts";
import { useLeave } from "../../shared/session/use-leave.ts";
import { AuditChain } from "../../features/audit/AuditChain.tsx";
import { Recovery } from "../../features/recovery/Recovery.tsx";
import { Sessions } from "../../features/settings/Sessions.tsx";
import { Theme } from "../../features/settings/Theme.tsx";

export default function SettingsScreen(): ReactNode {
  const { address } = useOwner();
  const leave = useLeave();
  return (
    <>
      <PageHeader title="Settings" />
      <Stack gap={5}>
        <Section title="Account" hint="Your wallet is your account.">
          <Address value={address} full />
        </Section>
        <Theme />
        <Sessions onSignOut={leave} />
        <Recovery />
        <AuditChain />
      </Stack>
    </>
  );
}

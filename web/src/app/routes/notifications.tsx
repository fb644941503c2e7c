import type { ReactNode } from "react";
import { useParams } from "react-router";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Tabs } from "../../components/Tabs.tsx";
import { EmailSettings } from "../../features/notifications/EmailSettings.tsx";
import { ConfirmEmail } from "../../features/notifications/LinkActions.tsx";
import { NotificationHistory } from "../../features/notifications/NotificationHistory.tsx";
import { Webhooks } from "../../features/notifications/Webhooks.tsx";
import { OwnerOnly, useIsRecovery } from "../../shared/session/OwnerOnly.tsx";
import NotFoundScreen from "./not-found.tsx";

export default function NotificationsScreen(): ReactNode {
  const { part } = useParams();
  const isRecovery = useIsRecovery();
  if (part !== undefined && part !== "email" && part !== "webhooks") return <NotFoundScreen />;
  return (
    <>
      <PageHeader title="Notifications" lead="What happened to your agents, and what needs you." />
      <Tabs
        label="Notifications"
        items={[
          { to: "/notifications", label: "History", end: true },
          // The recovery wallet cannot change where notifications go.
          ...(isRecovery
            ? []
            : [
                { to: "/notifications/email", label: "E-mail" },
                { to: "/notifications/webhooks", label: "Webhooks" },
              ]),
        ]}
      >
        {part === undefined && <NotificationHistory />}
        {part === "email" && (
          <OwnerOnly isScreen>
            <ConfirmEmail />
            <EmailSettings />
          </OwnerOnly>
        )}
        {part === "webhooks" && (
          <OwnerOnly isScreen>
            <Webhooks />
          </OwnerOnly>
        )}
      </Tabs>
    </>
  );
}

import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useParams } from "react-router";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Tabs } from "../../components/Tabs.tsx";
import { agentsQuery } from "../../features/agents/api.ts";
import { Devices } from "../../features/notifications/Devices.tsx";
import { EmailSettings } from "../../features/notifications/EmailSettings.tsx";
import { Failing } from "../../features/notifications/Failing.tsx";
import { ConfirmEmail } from "../../features/notifications/LinkActions.tsx";
import { NotificationHistory } from "../../features/notifications/NotificationHistory.tsx";
import { Webhooks } from "../../features/notifications/Webhooks.tsx";
import { OwnerOnly, useRights } from "../../shared/session/OwnerOnly.tsx";
import NotFoundScreen from "./not-found.tsx";

export default function NotificationsScreen(): ReactNode {
  const { part } = useParams();
  const isLimited = useRights() !== "all";
  const agents = useInfiniteQuery(agentsQuery()).data ?? [];
  if (part !== undefined && !/^(devices|email|webhooks)$/.test(part)) return <NotFoundScreen />;
  return (
    <>
      <PageHeader title="Notifications" lead="What happened to your agents, and what needs you." />
      <Tabs
        label="Notifications"
        items={[
          { to: "/notifications", label: "History", end: true },
          { to: "/notifications/devices", label: "Devices" },
          // Only the owner can change where notifications go; others can remove a device.
          ...(isLimited
            ? []
            : [
                { to: "/notifications/email", label: "E-mail" },
                { to: "/notifications/webhooks", label: "Webhooks" },
              ]),
        ]}
      >
        <Failing />
        {part === undefined && <NotificationHistory agents={agents} />}
        {part === "devices" && <Devices />}
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

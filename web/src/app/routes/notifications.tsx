import { Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useParams } from "react-router";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Tabs } from "../../components/Tabs.tsx";
import { agentsQuery } from "../../features/agents/api.ts";
import { EmailSettings } from "../../features/notifications/EmailSettings.tsx";
import { ConfirmEmail } from "../../features/notifications/LinkActions.tsx";
import { NotificationHistory } from "../../features/notifications/NotificationHistory.tsx";
import { Webhooks } from "../../features/notifications/Webhooks.tsx";
import NotFoundScreen from "./not-found.tsx";

export default function NotificationsScreen(): ReactNode {
  const { part } = useParams();
  const agents = useQuery(agentsQuery()).data;
  if (part !== undefined && part !== "email" && part !== "webhooks") return <NotFoundScreen />;
  return (
    <>
      <PageHeader title="Notifications" lead="Alerts about your agents." />
      <Stack gap="lg">
        <Tabs
          label="Notifications"
          items={[
            { to: "/notifications", label: "History", end: true },
            { to: "/notifications/email", label: "E-mail" },
            { to: "/notifications/webhooks", label: "Webhooks" },
          ]}
        />
        {part === undefined && (
          <NotificationHistory
            agentName={(id) => agents?.find((agent) => agent.id === id)?.name ?? "Agent"}
          />
        )}
        {part === "email" && (
          <>
            <ConfirmEmail />
            <EmailSettings />
          </>
        )}
        {part === "webhooks" && <Webhooks />}
      </Stack>
    </>
  );
}

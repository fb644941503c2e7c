import { Stack } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect } from "react";
import { useParams } from "react-router";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Tabs } from "../../components/Tabs.tsx";
import { agentsQuery } from "../../features/agents/api.ts";
import { EmailSettings } from "../../features/notifications/EmailSettings.tsx";
import { ConfirmEmail } from "../../features/notifications/LinkActions.tsx";
import { NotificationHistory } from "../../features/notifications/NotificationHistory.tsx";
import { Webhooks } from "../../features/notifications/Webhooks.tsx";
import { OwnerOnly, useIsRecovery } from "../../shared/session/OwnerOnly.tsx";
import NotFoundScreen from "./not-found.tsx";

export default function NotificationsScreen(): ReactNode {
  const { part } = useParams();
  const isRecovery = useIsRecovery();
  const { data: agents, hasNextPage, isFetching, fetchNextPage } = useInfiniteQuery(agentsQuery());
  // All agents, for their names; the history does not wait for them.
  useEffect(() => {
    if (hasNextPage && !isFetching) void fetchNextPage();
  }, [hasNextPage, isFetching, fetchNextPage]);
  if (part !== undefined && part !== "email" && part !== "webhooks") return <NotFoundScreen />;
  return (
    <>
      <PageHeader title="Notifications" lead="Alerts about your agents." />
      <Stack gap="lg">
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
        />
        {part === undefined && (
          <NotificationHistory
            agentName={(id) => agents?.find((agent) => agent.id === id)?.name ?? "Agent"}
          />
        )}
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
      </Stack>
    </>
  );
}

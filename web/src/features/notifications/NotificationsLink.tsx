import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { CountLink } from "../../components/CountLink.tsx";
import { BellIcon } from "../../components/icons.tsx";
import { unreadQuery } from "./api.ts";

export function NotificationsLink(): ReactNode {
  const count = useQuery(unreadQuery).data?.unread ?? 0;
  return (
    <CountLink
      to="/notifications"
      icon={<BellIcon />}
      label="Notifications"
      count={count}
      what="unread"
    />
  );
}

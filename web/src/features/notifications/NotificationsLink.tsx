import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { CountLink } from "../../components/CountLink.tsx";
import { BellIcon } from "../../components/icons.tsx";
import { unreadQuery } from "./api.ts";

export function NotificationsLink(): ReactNode {
  const news = useQuery(unreadQuery).data;
  return (
    <CountLink
      to="/notifications"
      icon={<BellIcon />}
      label="Notifications"
      count={news?.unread ?? 0}
      what="unread"
      trouble={(news?.failing.length ?? 0) > 0 ? "Some messages could not be sent" : undefined}
    />
  );
}

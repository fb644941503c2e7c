import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { Note } from "../../components/Layout.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import type { FailingChannel } from "../../lib/wire.ts";
import { unreadQuery } from "./api.ts";
import styles from "./Notifications.module.css";

const PLACES: Readonly<Record<string, { label: string; to: string }>> = {
  webhook: { label: "Webhook", to: "/notifications/webhooks" },
  email: { label: "E-mail to", to: "/notifications/email" },
  push: { label: "Device", to: "/notifications/devices" },
};

/** Nobody should believe that messages arrive while a way out fails. */
export function Failing(): ReactNode {
  const failing = useQuery(unreadQuery).data?.failing ?? [];
  if (failing.length === 0) return null;
  return (
    <div role="status" className={styles.failing}>
      {failing.map((one) => (
        <One key={`${one.channel}${one.id ?? ""}`} failing={one} />
      ))}
    </div>
  );
}

function One({ failing: { channel, name, since, error } }: { failing: FailingChannel }): ReactNode {
  const { label, to } = PLACES[channel] ?? { label: channel, to: "/settings" };
  return (
    <Note color="yellow">
      {label} <strong>{name}</strong> has failed since <TimeAgo iso={since} />:{" "}
      {error.replace(/\.$/, "")}. <Link to={to}>Open its settings</Link>. Everything is in this list
      meanwhile.
    </Note>
  );
}

import { Badge, Button, type MantineColor } from "@mantine/core";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Money } from "../../components/Money.tsx";
import { TimeAgo, useNowMs } from "../../components/RelativeTime.tsx";
import type { AgentChannel } from "../../lib/wire.ts";
import { useExplorer } from "../../shared/info.ts";
import { NotForViewers } from "../../shared/session/OwnerOnly.tsx";
import styles from "./ChannelRow.module.css";
import { sellerOf, statusIn } from "./words.ts";

interface ChannelRowProps {
  channel: AgentChannel;
  /** The owner's name for the payee. */
  label: string | undefined;
  onClose: () => void;
}

const COLORS: Record<AgentChannel["status"], MantineColor> = {
  open: "green",
  closing: "yellow",
  closed: "gray",
};

export function ChannelRow({ channel, label, onClose }: ChannelRowProps): ReactNode {
  const { status, payTo, network, balance, spent, held, returned, lastUsedAt } = channel;
  const nowMs = useNowMs();
  const explorer = useExplorer(network);
  return (
    <li className={`list-row ${styles.row}`}>
      <div className={styles.seller}>
        <strong>{sellerOf(channel)}</strong>
        <Address value={payTo} label={label} explorerUrl={explorer} />
        <span>
          <TimeAgo label="Used" iso={lastUsedAt} />
        </span>
      </div>
      <dl className={styles.amounts}>
        <Amount name="Balance" amount={balance} />
        <Amount name="Spent" amount={spent} />
        {status === "closed" ? (
          <Amount name="Returned" amount={returned} />
        ) : (
          <Amount name="Held" amount={held} />
        )}
      </dl>
      <div className={styles.status}>
        <Badge color={COLORS[status]}>{statusIn(channel, nowMs)}</Badge>
        {status === "open" && (
          <NotForViewers>
            <Button size="xs" onClick={onClose}>
              Close<span className="sr-only"> the channel to {sellerOf(channel)}</span>
            </Button>
          </NotForViewers>
        )}
      </div>
    </li>
  );
}

const Amount = ({ name, amount }: { name: string; amount: string }): ReactNode => (
  <div>
    <dt>{name}</dt>
    <dd>
      <Money amount={amount} />
    </dd>
  </div>
);

import { Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { Meter } from "../../components/Meter.tsx";
import { Money } from "../../components/Money.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { availableNow } from "../../lib/available.ts";
import { totalOf } from "../../lib/balances.ts";
import type { Agent } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";
import styles from "./AgentList.module.css";
import { AgentStatus } from "./AgentStatus.tsx";
import { PauseButton } from "./PauseButton.tsx";

export function AgentRow({ agent }: { agent: Agent }): ReactNode {
  const nameOf = useNetworkNames();
  const { known, silent } = totalOf(agent.balances);
  const isUnknown = silent.length === agent.balances.length;
  return (
    <li className={`list-row ${styles.row}`}>
      <div className={styles.name}>
        <Link className="row-link" to={`/agents/${agent.id}`}>
          {agent.name}
        </Link>
        <span className={styles.activity}>
          <TimeAgo iso={agent.lastActivityAt} none="No activity yet" />
          {agent.blocked24h > 0 && (
            <span className={styles.blocked}> · {agent.blocked24h} blocked in 24 h</span>
          )}
        </span>
      </div>
      <div className={styles.status}>
        <AgentStatus agent={agent} />
      </div>
      <div className={styles.balance}>
        <span className="sr-only">Balance</span>
        <Money amount={isUnknown ? null : known} />
        {!isUnknown && silent.length > 0 && (
          <Text size="xs" c="var(--ink-3)">
            not including {silent.map(nameOf).join(", ")}
          </Text>
        )}
      </div>
      <div className={styles.meter}>
        <Meter limits={agent.limits} compact />
        <Text c="dimmed" size="xs">
          {availableNow(agent)}
        </Text>
      </div>
      <div className={styles.pause}>
        <PauseButton agent={agent} compact />
      </div>
    </li>
  );
}

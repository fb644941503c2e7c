import type { ReactNode } from "react";
import { Link } from "react-router";
import { Meter } from "../../components/Meter.tsx";
import { Money } from "../../components/Money.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { availableNow } from "../../lib/available.ts";
import { totalOf } from "../../lib/balances.ts";
import type { Agent } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { AgentStatus } from "./AgentStatus.tsx";
import styles from "./AgentList.module.css";
import { PauseButton } from "./PauseButton.tsx";

export function AgentRow({ agent }: { agent: Agent }): ReactNode {
  const nameOf = useNetworkNames();
  const { known, silent } = totalOf(agent.balances);
  const isUnknown = silent.length === agent.balances.length;
  return (
    <li className={styles.row}>
      <div className={styles.name}>
        <Link to={`/agents/${agent.id}`}>{agent.name}</Link>
        <span className={styles.activity}>
          {agent.lastActivityAt === null ? (
            "No activity yet"
          ) : (
            <TimeAgo iso={agent.lastActivityAt} />
          )}
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
          <span className={styles.without}>not including {silent.map(nameOf).join(", ")}</span>
        )}
      </div>
      <div className={styles.meter}>
        <Meter limits={agent.limits} compact />
        <p className={styles.now}>{availableNow(agent)}</p>
      </div>
      <div className={styles.pause}>
        <PauseButton agent={agent} compact />
      </div>
    </li>
  );
}

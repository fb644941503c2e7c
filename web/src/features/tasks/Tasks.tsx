import { Badge, EmptyState, type MantineColor } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { Money } from "../../components/Money.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { plural } from "../../lib/plural.ts";
import { formatDateTime } from "../../lib/time.ts";
import type { Agent, Task } from "../../lib/wire.ts";
import { tasksQuery } from "./api.ts";
import styles from "./Tasks.module.css";

const STATES: Readonly<Record<string, { label: string; color: MantineColor }>> = {
  open: { label: "Open", color: "green" },
  ended: { label: "Ended", color: "gray" },
  closed: { label: "Closed", color: "gray" },
};

/** What the agent's tasks cost. Only the agent opens and closes them. */
export function Tasks({ agent }: { agent: Agent }): ReactNode {
  const query = useInfiniteQuery(tasksQuery(agent.id));
  return (
    <Section
      flush
      title="Tasks"
      hint="Ceilings that the agent sets itself for one piece of work. Your limits stay, and come first."
    >
      <List
        query={query}
        what="tasks"
        failed="The tasks could not be loaded"
        placeholders={2}
        empty={
          <EmptyState
            title="No tasks"
            description="They appear when the agent opens one, to keep a piece of work within a ceiling."
          />
        }
      >
        {(task) => <TaskRow key={task.id} agentId={agent.id} task={task} />}
      </List>
    </Section>
  );
}

function TaskRow({ agentId, task }: { agentId: string; task: Task }): ReactNode {
  const { id, name, state, limit, spent, reserved, left, payments, expiresAt, createdAt } = task;
  const { label, color } = STATES[state] ?? { label: state, color: "gray" };
  const found = new URLSearchParams({ agent: agentId, task: id, period: "90-days" });
  return (
    <li className={`list-row ${styles.row}`}>
      <div className={styles.task}>
        <Link className={`row-link ${styles.id}`} to={`/spending?${found.toString()}`}>
          {id}
        </Link>
        {name !== null && <span>{name}</span>}
        <span>
          <TimeAgo label="Opened" iso={createdAt} />
          {`, ${plural(payments, "payment")}`}
        </span>
        {expiresAt !== null && state === "open" && <span>Ends {formatDateTime(expiresAt)}</span>}
      </div>
      <dl className={styles.amounts}>
        <Amount name="Ceiling" amount={limit} />
        <Amount name="Spent" amount={spent} />
        {reserved !== "0" && <Amount name="Reserved" amount={reserved} />}
        <Amount name="Left" amount={left} />
      </dl>
      <Badge color={color}>{label}</Badge>
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

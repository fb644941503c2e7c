import type { ReactNode } from "react";
import { Tasks } from "../../features/tasks/Tasks.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentTasksScreen(): ReactNode {
  const agent = useAgent();
  return <Tasks key={agent.id} agent={agent} />;
}

import type { ReactNode } from "react";
import { Channels } from "../../features/channels/Channels.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentChannelsScreen(): ReactNode {
  const agent = useAgent();
  return <Channels key={agent.id} agent={agent} />;
}

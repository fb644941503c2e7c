import type { ReactNode } from "react";
import { Keys } from "../../features/keys/Keys.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentKeysScreen(): ReactNode {
  return <Keys agent={useAgent()} />;
}

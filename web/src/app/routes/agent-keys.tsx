import type { ReactNode } from "react";
import { Stack } from "../../components/Layout.tsx";
import { Connections } from "../../features/connections/Connections.tsx";
import { Keys } from "../../features/keys/Keys.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentKeysScreen(): ReactNode {
  const agent = useAgent();
  return (
    <Stack gap={5}>
      <Connections agent={agent} />
      <Keys agent={agent} />
    </Stack>
  );
}

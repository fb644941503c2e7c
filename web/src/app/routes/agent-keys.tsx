import { Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Connections } from "../../features/connections/Connections.tsx";
import { Keys } from "../../features/keys/Keys.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentKeysScreen(): ReactNode {
  const agent = useAgent();
  return (
    <Stack gap="lg">
      <Connections agent={agent} />
      <Keys agent={agent} />
    </Stack>
  );
}

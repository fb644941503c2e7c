import type { ReactNode } from "react";
import { reloadAgent } from "../../features/agents/api.ts";
import { PickSeller } from "../../features/marketplace/PickSeller.tsx";
import { EditRules } from "../../features/rules/EditRules.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentRulesScreen(): ReactNode {
  const agent = useAgent();
  return (
    <EditRules
      key={agent.id}
      agent={agent}
      reload={() => reloadAgent(agent.id)}
      picker={(add, has) => <PickSeller onPick={add} has={has} />}
    />
  );
}

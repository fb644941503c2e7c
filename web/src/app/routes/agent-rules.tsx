import type { ReactNode } from "react";
import { EditRules } from "../../features/agents/EditRules.tsx";
import { PickSeller } from "../../features/marketplace/PickSeller.tsx";
import { useAgent } from "./agent.tsx";

export default function AgentRulesScreen(): ReactNode {
  const agent = useAgent();
  return (
    <EditRules
      key={agent.id}
      agent={agent}
      picker={(add, has) => (
        <PickSeller
          onPick={(entry) => {
            add([entry]);
          }}
          has={has}
        />
      )}
    />
  );
}

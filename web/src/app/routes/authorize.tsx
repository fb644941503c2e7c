import type { ReactNode } from "react";
import { useLocation } from "react-router";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { useAgentChoice } from "../../features/agents/AgentSearch.tsx";
import { parametersIn } from "../../features/connections/api.ts";
import { Consent } from "../../features/connections/Consent.tsx";
import { revokeKey } from "../../features/keys/api.ts";
import { PickSeller } from "../../features/marketplace/PickSeller.tsx";
import { useSuggestedPayees } from "../../features/marketplace/suggested.ts";
import { CreateAgent } from "../../features/rules/CreateAgent.tsx";
import type { Agent, CreatedAgent } from "../../lib/wire.ts";
import { useNetwork } from "../../shared/info.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";

/** The page to which a program sends the owner (OAuth's authorization endpoint). */
export default function AuthorizeScreen(): ReactNode {
  const { search: request } = useLocation();
  const { query, search, more } = useAgentChoice();
  if (!query.data)
    return (
      <QueryStatus query={query} what="your agents" failed="Your agents could not be loaded">
        <Skeleton shape="title" />
        <Skeleton shape="row" count={3} />
      </QueryStatus>
    );
  return (
    <OwnerOnly isScreen>
      <Consent
        key={request}
        parameters={parametersIn(request)}
        agents={query.data}
        search={search}
        more={more}
        createAgent={(onCreated) => <NewAgent onCreated={onCreated} />}
      />
    </OwnerOnly>
  );
}

function NewAgent({ onCreated }: { onCreated: (agent: Agent) => void }): ReactNode {
  const suggested = useSuggestedPayees(useNetwork()?.id);
  const created = ({ agent, key }: CreatedAgent): void => {
    onCreated(agent);
    // The agent's first key was not shown, so it is revoked. If that fails, the key is still unknown to
    // everyone.
    void revokeKey(agent.id, key.id).catch(() => {});
  };
  return (
    <CreateAgent
      onCreated={created}
      suggested={suggested}
      picker={(add, has) => <PickSeller onPick={add} has={has} />}
    />
  );
}

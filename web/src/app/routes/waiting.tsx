import { type ReactNode, useState } from "react";
import { PageHeader } from "../../components/PageHeader.tsx";
import { KeyReveal } from "../../features/keys/KeyReveal.tsx";
import { OutcomeDialog } from "../../features/teams/OutcomeDialog.tsx";
import type { Outcome } from "../../features/teams/use-decide.ts";
import { WaitingOrders } from "../../features/teams/WaitingOrders.tsx";
import { useOwner } from "../../shared/session/session-context.ts";

export default function WaitingScreen(): ReactNode {
  const { member } = useOwner();
  const [outcome, setOutcome] = useState<Outcome>();
  return (
    <>
      <PageHeader
        title={member ? "Waiting orders" : "Invitations"}
        lead={
          member
            ? "What needs the signatures of several members. Nothing is changed before all have signed."
            : "Teams that ask you to join."
        }
      />
      <WaitingOrders onDone={setOutcome} />
      <OutcomeDialog
        outcome={outcome}
        onClose={() => {
          setOutcome(undefined);
        }}
        reveal={(apiKey, agentName, onDone) => (
          <KeyReveal apiKey={apiKey} agentName={agentName} onDone={onDone} />
        )}
      />
    </>
  );
}

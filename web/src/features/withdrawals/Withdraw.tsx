import type { ReactNode } from "react";
import { Section } from "../../components/Layout.tsx";
import type { Agent } from "../../lib/wire.ts";
import { useWithdrawal } from "./use-withdrawal.ts";
import { WithdrawalReview } from "./WithdrawalReview.tsx";
import { WithdrawForm } from "./WithdrawForm.tsx";

interface WithdrawProps {
  agent: Agent;
  /** Where the owner's money goes: the wallet, or the payout address of an owner without one. */
  owner: string;
  /** What lies elsewhere, and how it gets here. */
  elsewhere: ReactNode;
}

export function Withdraw({ agent, owner, elsewhere }: WithdrawProps): ReactNode {
  const withdrawal = useWithdrawal(agent, owner);
  const { state } = withdrawal;
  const isForm = state.step === "form" || state.step === "preparing";
  return (
    <Section
      title="Withdraw"
      hint="A withdrawal needs your signature. It works while the agent is paused, expired or at its limit, and does not count against its limits."
    >
      {/* Kept mounted, so that "Back" returns to the filled form. */}
      <div hidden={!isForm}>
        <WithdrawForm agent={agent} owner={owner} withdrawal={withdrawal} elsewhere={elsewhere} />
      </div>
      {state.step !== "form" && state.step !== "preparing" && (
        <WithdrawalReview agent={agent} owner={owner} withdrawal={withdrawal} state={state} />
      )}
    </Section>
  );
}

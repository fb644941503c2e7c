import { Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Money } from "../../components/Money.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { hasWallet, useOwner, whose } from "../../shared/session/session-context.ts";
import { ToSign } from "../../shared/signing/ToSign.tsx";
import { NextStep, type ReviewProps, type ReviewState } from "./NextStep.tsx";
import styles from "./Withdraw.module.css";

const STEPS: { title: string; done: ReviewState["step"][]; now: ReviewState["step"][] }[] = [
  {
    title: "Order prepared",
    done: ["review", "signing", "waiting", "sending", "open", "done"],
    now: [],
  },
  { title: "Signed", done: ["sending", "open", "done"], now: ["signing", "waiting"] },
  { title: "Sent to the chain", done: ["done"], now: ["sending", "open"] },
  { title: "Confirmed", done: ["done"], now: [] },
];

/** Shows the fields that the wallet will show, then each step to the chain. */
export function WithdrawalReview({ agent, owner, withdrawal, state }: ReviewProps): ReactNode {
  const session = useOwner();
  const home = hasWallet(session) ? "wallet" : "payout address";
  const { order, typedData } = state.prepared;
  return (
    <Stack gap="lg">
      <div>
        <Money amount={BigInt(order.amount)} size="display" />
        <p>
          goes from {agent.name} to{" "}
          {isSameAddress(order.to, owner) ? `${whose(session)} ${home}` : "another address"}.
        </p>
      </div>
      <ToSign typedData={typedData} />
      <ol className={styles.steps} aria-label="Progress">
        {STEPS.map((step) => {
          const phase = step.done.includes(state.step)
            ? "done"
            : step.now.includes(state.step)
              ? "now"
              : "later";
          return (
            <li
              key={step.title}
              data-phase={phase}
              aria-current={phase === "now" ? "step" : undefined}
            >
              {step.title}
              {phase === "done" && <span className="sr-only">, done</span>}
            </li>
          );
        })}
      </ol>
      <NextStep agent={agent} owner={owner} withdrawal={withdrawal} state={state} />
    </Stack>
  );
}

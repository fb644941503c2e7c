import { Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { KeyValues } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { formatDateTime } from "../../lib/time.ts";
import { useNetworkOfChain } from "../../shared/info.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import { NextStep, type ReviewProps, type ReviewState } from "./NextStep.tsx";
import styles from "./Withdraw.module.css";

const STEPS: { title: string; done: ReviewState["step"][]; now: ReviewState["step"][] }[] = [
  { title: "Order prepared", done: ["review", "signing", "sending", "open", "done"], now: [] },
  { title: "Signed by your wallet", done: ["sending", "open", "done"], now: ["signing"] },
  { title: "Sent to the chain", done: ["done"], now: ["sending", "open"] },
  { title: "Confirmed", done: ["done"], now: [] },
];

/** Shows exactly the fields that the wallet will show, then each step to the chain. */
export function WithdrawalReview({ agent, owner, withdrawal, state }: ReviewProps): ReactNode {
  const { second } = useOwner();
  const { order, typedData } = state.prepared;
  const { chainId } = typedData.domain;
  const network = useNetworkOfChain(chainId);
  return (
    <Stack gap="lg">
      <div>
        <Money amount={BigInt(order.amount)} size="display" />
        <p>
          goes from {agent.name} to{" "}
          {isSameAddress(order.to, owner)
            ? second === null
              ? "your wallet"
              : "the owner's wallet"
            : "another address"}
          .
        </p>
      </div>
      <KeyValues
        rows={[
          ["Wallet", <Address key="wallet" value={order.wallet} full copy={false} />],
          ["To", <Address key="to" value={order.to} full copy={false} />],
          ["Asset (USDC)", <Address key="asset" value={order.asset} full copy={false} />],
          [
            "Amount",
            <span key="amount">
              <code>{order.amount}</code> atomic units
            </span>,
          ],
          [
            "Nonce",
            <code key="nonce" className={styles.nonce}>
              {order.nonce}
            </code>,
          ],
          [
            "Deadline",
            `${formatDateTime(new Date(Number(order.deadline) * 1000).toISOString())} (${order.deadline})`,
          ],
          [
            "Network",
            network === undefined ? `Chain ${chainId}` : `${network.name} (chain ${chainId})`,
          ],
        ]}
      />
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

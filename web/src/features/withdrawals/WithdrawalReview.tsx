import type { ReactNode } from "react";
import { Address, TxHash } from "../../components/Address.tsx";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { KeyValues, Note, Row, Stack } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { formatDateTime } from "../../lib/time.ts";
import { useConnection } from "../../lib/wallet/connection.ts";
import type { Agent } from "../../lib/wire.ts";
import { useExplorer, useNetwork } from "../../shared/info/use-info.ts";
import { ChainHelp } from "../../shared/wallet/ChainHelp.tsx";
import { WalletPicker } from "../../shared/wallet/WalletPicker.tsx";
import type { Withdrawal, WithdrawalState } from "./use-withdrawal.ts";
import styles from "./Withdraw.module.css";

type ReviewState = Exclude<WithdrawalState, { step: "form" | "preparing" }>;

interface ReviewProps {
  agent: Agent;
  owner: string;
  withdrawal: Withdrawal;
  state: ReviewState;
}

const STEPS: { title: string; done: ReviewState["step"][]; now: ReviewState["step"][] }[] = [
  { title: "Order prepared", done: ["review", "signing", "sending", "open", "done"], now: [] },
  { title: "Signed by your wallet", done: ["sending", "open", "done"], now: ["signing"] },
  { title: "Sent to the chain", done: ["done"], now: ["sending", "open"] },
  { title: "Confirmed", done: ["done"], now: [] },
];

/** Exactly the fields the wallet is about to show, then the way to the chain, step by step. */
export function WithdrawalReview({ agent, owner, withdrawal, state }: ReviewProps): ReactNode {
  const network = useNetwork(agent.network);
  const { order } = state.prepared;
  return (
    <Stack gap={5}>
      <div>
        <Money amount={BigInt(order.amount)} size="display" />
        <p>
          leaves {agent.name} for{" "}
          {isSameAddress(order.to, owner) ? "your wallet" : "another address"}.
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
            network === undefined ? agent.network : `${network.name} (chain ${network.chainId})`,
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

function NextStep({ agent, owner, withdrawal, state }: ReviewProps): ReactNode {
  const explorer = useExplorer(agent.network);
  switch (state.step) {
    case "review":
    case "signing":
      return <SignOrder agent={agent} owner={owner} withdrawal={withdrawal} state={state} />;
    case "sending":
      return <p role="status">The transfer is on its way. This page follows it.</p>;
    case "open":
      return (
        <Note tone="warn">
          <Stack gap={3}>
            <p role="status">
              The outcome is not known yet. The order is signed and works once, so asking again is
              safe.
            </p>
            <ErrorNotice error={state.error} />
            <Row>
              <Button
                variant="primary"
                size="small"
                onClick={() => void withdrawal.askAgain(state.signed)}
              >
                Ask again
              </Button>
            </Row>
          </Stack>
        </Note>
      );
    default:
      return (
        <Note tone="ok">
          <Stack gap={3}>
            <p role="status">
              <strong>Confirmed on chain.</strong>
            </p>
            <TxHash value={state.answer.txHash} explorerUrl={explorer} />
            <Row>
              <Button size="small" onClick={withdrawal.reset}>
                Done
              </Button>
            </Row>
          </Stack>
        </Note>
      );
  }
}

function SignOrder({
  agent,
  owner,
  withdrawal,
  state,
}: ReviewProps & { state: ReviewState & { step: "review" | "signing" } }): ReactNode {
  const connection = useConnection();
  const network = useNetwork(agent.network);
  const back = (
    <Button disabled={state.step === "signing"} onClick={withdrawal.reset}>
      Back
    </Button>
  );
  if (!connection) {
    return (
      <Stack gap={3}>
        <p>
          Connect the wallet you signed in with, <Address value={owner} copy={false} />, to sign
          this order.
        </p>
        <WalletPicker />
        <Row>{back}</Row>
      </Stack>
    );
  }
  if (network && connection.chainId !== network.chainId)
    return (
      <ChainHelp connection={connection} network={network}>
        {back}
      </ChainHelp>
    );
  return (
    <Stack gap={3}>
      {state.step === "review" && state.declined === true && (
        <Note>You declined in your wallet. Nothing was signed, and nothing moved.</Note>
      )}
      {state.step === "review" && state.error !== undefined && (
        <ErrorNotice title="The withdrawal was not made" error={state.error} />
      )}
      <Row>
        <Button
          variant="primary"
          pending={state.step === "signing" && "Compare the fields in your wallet, then sign…"}
          onClick={() => void withdrawal.sign(connection, state.prepared)}
        >
          Sign and withdraw
        </Button>
        {back}
      </Row>
    </Stack>
  );
}

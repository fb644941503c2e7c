/**
 * Broadcasts a payer's own approval transaction that its payment needs first
 * (docs/decisions/0029-no-gas-for-third-parties.md), unchanged, and waits until the payment would succeed.
 * No money of ours moves and nothing is stored: a payment is accepted only when the chain would take it by
 * itself, so a crash before that leaves nothing behind.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Address, Hex } from "viem";
import { classifyChainError } from "../../infra/chain/errors.ts";
import { readNonce } from "../../infra/chain/contracts.ts";
import type { ChainClient, Chains } from "../../infra/chain/index.ts";
import { refuse, type Payment, type PayerApproval, type Refusal } from "../../schemes/scheme.ts";
import type { PaymentResult, PaymentChecker } from "./verify.ts";

interface PayerApprovalsDeps {
  checker: Pick<PaymentChecker, "checkPayment">;
  chains: Chains;
  /** The minimum time to wait for an approval. */
  patienceMs: number;
}

/** The number of requests that may wait for an approval at once. */
const MAX_WAITING = 16;
/**
 * An approval that is in no block after this many blocks is not waited for: it or the chain is slow, and other
 * requests need its place. The payment can be posted again.
 */
const MOST_BLOCKS = 4;
/**
 * Checks of the payment after the payer's nonce was used: behind a load balancer, a lagging node may respond
 * first.
 */
const LOOKS = 5;

export class PayerApprovals {
  readonly #deps: PayerApprovalsDeps;
  #waiting = 0;

  constructor(deps: PayerApprovalsDeps) {
    this.#deps = deps;
  }

  /** Returns the result of the payment's check after its approval, or why it was not checked again. */
  async submit(
    payment: Payment,
    payerApproval: PayerApproval,
    timeoutMs: number,
  ): Promise<PaymentResult> {
    const { payer } = payment;
    const chain = this.#deps.chains.byChainId(payment.network.chainId);
    if (!chain) throw new Error(`chain ${payment.network.chainId} is not configured`);
    const failed = (why: string): Refusal => refuse("erc20_approval_broadcast_failed", payer, why);
    if (this.#waiting >= MAX_WAITING) return failed("Too many approvals are pending. Try again.");
    this.#waiting += 1;
    try {
      const refused = await this.#send(chain, payerApproval.raw);
      if (refused !== undefined) return failed(refused);
      const patienceMs = Math.max(chain.network.blockTimeMs * MOST_BLOCKS, this.#deps.patienceMs);
      const passed = await this.#nonceToPass(chain, payerApproval, Math.min(timeoutMs, patienceMs));
      if (!passed)
        return failed(
          "The approval was sent and is not in a block yet. The payment was not sent: send the same settle request again.",
        );
      return await this.#checkAgain(chain, payment);
    } finally {
      this.#waiting -= 1;
    }
  }

  /** Returns why every node rejects it. No response, or "already known", proves nothing against it. */
  async #send({ rpc }: ChainClient, raw: Hex): Promise<string | undefined> {
    try {
      await rpc.broadcast(raw);
      return undefined;
    } catch (error) {
      const { kind } = classifyChainError(error);
      const mayBeThere = ["already_known", "nonce_too_low", "unreachable", "sent_not_mined"];
      return mayBeThere.includes(kind)
        ? undefined
        : `The network's nodes reject the approval (${kind.replaceAll("_", " ")}).`;
    }
  }

  /** False if the approval is in no block in time. */
  async #nonceToPass(
    chain: ChainClient,
    { from, nonce }: { from: Address; nonce: bigint },
    timeoutMs: number,
  ): Promise<boolean> {
    const untilMs = performance.now() + timeoutMs;
    for (;;) {
      const next = await readNonce(chain.rpc, from, "latest");
      if (next > nonce) return true;
      if (performance.now() >= untilMs) return false;
      await pause(chain);
    }
  }

  async #checkAgain(chain: ChainClient, payment: Payment): Promise<PaymentResult> {
    for (let look = 1; ; look += 1) {
      const checked = await this.#deps.checker.checkPayment(payment);
      if (checked.isValid && !checked.payerApproval) return checked;
      if (look === LOOKS)
        return checked.isValid ? refuse("erc20_approval_tx_failed", payment.payer) : checked;
      await pause(chain);
    }
  }
}

const pause = ({ network }: ChainClient): Promise<void> =>
  sleep(Math.min(Math.max(network.blockTimeMs / 4, 50), 500));

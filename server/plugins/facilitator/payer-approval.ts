/**
 * Handles a payer's own approval transaction that its payment needs first
 * (docs/decisions/0029-no-gas-for-third-parties.md): simulated together with the payment, broadcast unchanged, and
 * waited for.
 * No money of ours moves and nothing is stored: a payment is accepted only when the chain would take it by
 * itself, so a crash before that leaves nothing behind.
 */
import type { Address, Hex } from "viem";
import { MULTICALL3_ADDRESS, type NetworkFacts } from "../../core/networks.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { classifyChainError } from "../../infra/chain/errors.ts";
import { readNativeBalance, readNonce, tagOf } from "../../infra/chain/contracts.ts";
import type { ChainRpc } from "../../infra/chain/rpc.ts";
import { schemeOf } from "../../schemes/index.ts";
import { refuse, type PayerApproval, type Refusal } from "../../schemes/scheme.ts";
import type { Approved, CheckResult } from "./check.ts";

/** Why the network would reject it, or that the payment would fail after it. Undefined: both would succeed. */
export type PayerApprovalProblem = { readonly why: string } | { readonly fails: true } | undefined;

const UNITS_PER_ATOMIC = 10n ** 12n;
const unreadable = { why: "The network could not simulate the approval." };

export class PayerApprovalReads {
  readonly #rpc: Pick<ChainRpc, "call">;
  readonly #network: NetworkFacts;
  readonly #gasCapPerItem: bigint;

  constructor(rpc: Pick<ChainRpc, "call">, network: NetworkFacts, gasCapPerItem: bigint) {
    this.#rpc = rpc;
    this.#network = network;
    this.#gasCapPerItem = gasCapPerItem;
  }

  async rehearse(
    payerApproval: PayerApproval,
    authorization: SignedAuthorization,
  ): Promise<PayerApprovalProblem> {
    const { from, nonce, gas, maxFeeWei } = payerApproval;
    const [expected, balanceWei, block, goesThrough] = await Promise.all([
      readNonce(this.#rpc, from, "latest"),
      readNativeBalance(this.#rpc, from),
      this.#rpc.call<{ baseFeePerGas?: Hex } | null>("eth_getBlockByNumber", ["latest", false]),
      this.#simulate(payerApproval, authorization),
    ]);
    if (nonce !== expected)
      return { why: `The approval has nonce ${nonce}, but the payer's next nonce is ${expected}.` };
    if (!block) return unreadable;
    const baseFeeWei = BigInt(block.baseFeePerGas ?? "0x0");
    // The next block's base fee may be an eighth higher. An approval that could not be included in it would
    // only be waited for.
    const neededWei = baseFeeWei + (baseFeeWei + 7n) / 8n;
    if (maxFeeWei < neededWei)
      return {
        why: `The approval offers ${maxFeeWei} wei for gas that now costs ${baseFeeWei}. Offer at least ${neededWei}.`,
      };
    // Where gas is paid in USDC, the payment and the approval's gas come out of the same balance.
    const isUsdc = this.#network.nativeSymbol === "USDC";
    const alsoWei = isUsdc ? authorization.value * UNITS_PER_ATOMIC : 0n;
    const costWei = gas * maxFeeWei;
    if (balanceWei < costWei + alsoWei)
      return {
        why: `The payer has ${balanceWei} wei of ${this.#network.nativeSymbol}; the approval needs up to ${costWei}${isUsdc ? " in addition to the payment" : ""}. This facilitator does not pay gas for approvals: sign the token's permit instead (eip2612GasSponsoring).`,
      };
    if (goesThrough === undefined) return unreadable;
    return goesThrough ? undefined : { fails: true };
  }

  /** Simulates both in one block. Undefined if the node does not support `eth_simulateV1`. */
  async #simulate(
    { from, call, gas }: PayerApproval,
    authorization: SignedAuthorization,
  ): Promise<boolean | undefined> {
    const plan = schemeOf(authorization).planTransfer(authorization);
    const settle = { from: plan.sender ?? MULTICALL3_ADDRESS, gas: tagOf(this.#gasCapPerItem) };
    const together = [
      { from, to: call.target, data: call.data, gas: tagOf(gas) },
      ...plan.calls().map(({ target, data }) => ({ ...settle, to: target, data })),
    ];
    try {
      const [block] = await this.#rpc.call<{ calls: { status: Hex }[] }[]>("eth_simulateV1", [
        { blockStateCalls: [{ calls: together }] },
        "latest",
      ]);
      const results = block?.calls ?? [];
      return results.length === together.length && results.every(({ status }) => status === "0x1");
    } catch (error) {
      const { kind } = classifyChainError(error);
      if (kind === "unreachable") throw error;
      return kind === "method_missing" ? undefined : false;
    }
  }
}

interface SubmitterChain {
  readonly rpc: Pick<ChainRpc, "call" | "broadcast">;
  readonly network: Pick<NetworkFacts, "blockTimeMs">;
}

export interface SubmitterDeps {
  chainOf(chainId: number): SubmitterChain | undefined;
  sleep(ms: number): Promise<void>;
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

export class PayerApprovalSubmitter {
  readonly #deps: SubmitterDeps;
  #waiting = 0;

  constructor(deps: SubmitterDeps) {
    this.#deps = deps;
  }

  /** `check` simulates the payment on the chain. Returns its last result, or why it was not called. */
  async submit(
    { payment, payerApproval }: Approved & { payerApproval: PayerApproval },
    check: () => Promise<CheckResult>,
    timeoutMs: number,
  ): Promise<CheckResult> {
    const { payer } = payment;
    const chain = this.#deps.chainOf(payment.network.chainId);
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
      return await this.#lookAgain(chain, check, payer);
    } finally {
      this.#waiting -= 1;
    }
  }

  /** Returns why every node rejects it. No response, or "already known", proves nothing against it. */
  async #send({ rpc }: SubmitterChain, raw: Hex): Promise<string | undefined> {
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

  async #nonceToPass(
    chain: SubmitterChain,
    { from, nonce }: { from: Address; nonce: bigint },
    timeoutMs: number,
  ): Promise<boolean> {
    const untilMs = performance.now() + timeoutMs;
    for (;;) {
      const next = await readNonce(chain.rpc, from, "latest");
      if (next > nonce) return true;
      if (performance.now() >= untilMs) return false;
      await this.#pause(chain);
    }
  }

  async #lookAgain(
    chain: SubmitterChain,
    check: () => Promise<CheckResult>,
    payer: string,
  ): Promise<CheckResult> {
    for (let look = 1; ; look += 1) {
      const checked = await check();
      if (checked.isValid && !checked.payerApproval) return checked;
      if (look === LOOKS)
        return checked.isValid ? refuse("erc20_approval_tx_failed", payer) : checked;
      await this.#pause(chain);
    }
  }

  #pause({ network }: SubmitterChain): Promise<void> {
    return this.#deps.sleep(Math.min(Math.max(network.blockTimeMs / 4, 50), 500));
  }
}

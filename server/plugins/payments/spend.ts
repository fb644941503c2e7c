/**
 * `POST /api/agents/spend`: the whole request, in the order in which it happens. What becomes of it when the
 * process dies between two steps is written in steps.ts.
 */
import { getAddress, type Address } from "viem";
import { parseAddress, plainWords } from "../../core/foreign-text.ts";
import { formatAtomic, parsePayable } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { refuseField } from "../../core/refuse-field.ts";
import type { SpendRequest } from "../../schemas/payments.ts";
import { notKept, type Answer, type Calls } from "./idempotency.ts";
import type { AgentReserve, PayRequest } from "./reserve.ts";
import { longestRelayedMs, resultOf, type PaymentSteps } from "./steps.ts";
import type { PaymentRow } from "./store.ts";

interface SpendDeps {
  calls: Calls;
  agentReserve: Pick<AgentReserve, "reserve">;
  steps: PaymentSteps;
  remainingOf(agentId: string): Promise<bigint>;
  networkOf(chainId: number): string;
  settleWaitMs: number;
}

type Spending = Omit<PayRequest, "kind">;

/** A spend that the engine has accepted, now or for an earlier request. */
interface Accepted {
  paymentId: string;
  amountAtomic: bigint;
  chainId: number;
  remainingAtomic: bigint;
}

export class Spend {
  readonly #deps: SpendDeps;

  constructor(deps: SpendDeps) {
    this.#deps = deps;
  }

  async run(request: Spending): Promise<Answer> {
    const { calls, agentReserve, steps, settleWaitMs } = this.#deps;
    const agentId = request.payer.id;
    const limits = { agentId, longestMs: longestRelayedMs(settleWaitMs) };
    const begun = await calls.begin(request.idempotency, limits);
    if (begun.kind === "answered") return begun.answer;
    if (begun.kind === "free") throw notKept(begun.freeResponse);
    const { call } = begun;

    let paid: Accepted;
    if (begun.kind === "signed") {
      // An earlier request signed it: only its outcome is missing.
      paid = await this.#signedBefore(begun.payment);
    } else {
      const reserved = await agentReserve.reserve({ ...request, kind: "spend" });
      if (reserved.kind !== "reserved") return call.notReserved(reserved) ?? this.run(request);
      const authorization = await steps.sign(reserved, call);
      await steps.accept(reserved, { kind: "spend", relay: true, authorization });
      paid = { ...request, ...reserved };
    }

    const outcome = await steps.wait(paid.paymentId);
    const { paymentId } = paid;
    const result = resultOf(paymentId, outcome, ({ txHash, settledAt }) => ({
      success: true,
      txHash,
      paymentId,
      recipient: getAddress(request.to),
      amount: formatAtomic(paid.amountAtomic),
      network: this.#deps.networkOf(paid.chainId),
      settledAt: settledAt.toISOString(),
      remaining: formatAtomic(paid.remainingAtomic),
      ...(request.task !== undefined && { task: request.task }),
    }));
    const key = { agentId, paymentId };
    if (await call.mustPayItself(key, result)) return this.run(request);
    return call.answer(await call.keep(key, result, { isInLedger: true }));
  }

  async #signedBefore({ id, agentId, amountAtomic, chainId }: PaymentRow): Promise<Accepted> {
    const remainingAtomic = await this.#deps.remainingOf(agentId);
    return { paymentId: id, amountAtomic, chainId: Number(chainId), remainingAtomic };
  }
}

/** Reads an agent's spend request, or throws an error that names the invalid field. */
export function readSpend(
  body: SpendRequest,
  wallet: { walletAddress: Address; network: NetworkFacts },
): Pick<PayRequest, "chainId" | "asset" | "to" | "amountAtomic" | "memo" | "task"> {
  const amount = parsePayable(body.amount);
  if (!amount.ok) throw refuseField("invalid_amount", "body.amount", amount.reason);
  const { network } = wallet;
  const to = readPayee(body.recipient, "body.recipient", {
    walletAddress: wallet.walletAddress,
    asset: network.usdc.address,
  });
  return {
    chainId: network.chainId,
    asset: network.usdc.address.toLowerCase() as Address,
    to,
    amountAtomic: amount.atomic,
    // Agents repeat third-party text, and owners read it.
    memo: plainWords(body.memo, 280) || undefined,
    task: body.task,
  };
}

/** Reads a payee address: not the zero address, not the token contract, not the paying wallet. */
export function readPayee(
  text: string,
  path: string,
  wallet: { walletAddress: Address; asset: Address },
): Address {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw refuseField("invalid_address", path, parsed.reason);
  if (parsed.address === wallet.walletAddress.toLowerCase())
    throw refuseField("invalid_address", path, "is the paying wallet itself");
  if (parsed.address === wallet.asset.toLowerCase())
    throw refuseField(
      "invalid_address",
      path,
      "is the token's contract, which cannot receive payments",
    );
  return parsed.address;
}

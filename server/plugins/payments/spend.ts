/** `POST /api/agents/spend`: pay, wait for the proof, answer. */
import { getAddress, type Address } from "viem";
import type { SpendRequest } from "../../schemas/payments.ts";
import { parseAddress } from "../../core/foreign-text.ts";
import { formatAtomic, parsePayable } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { refuseField } from "../agents/rules.ts";
import type { AgentReserve, PayRequest } from "./agent-reserve.ts";
import type { Answer } from "./idempotency.ts";
import type { PayFlow, PayOrder, Settled } from "./pay.ts";

export interface SpendDeps {
  flow: PayFlow;
  agentReserve: Pick<AgentReserve, "reserve">;
  remainingOf(agentId: string): Promise<bigint>;
  networkOf(chainId: number): string;
}

type Spending = Omit<PayRequest, "kind">;

export class Spend {
  readonly #deps: SpendDeps;

  constructor(deps: SpendDeps) {
    this.#deps = deps;
  }

  run(request: Spending): Promise<Answer> {
    return this.#deps.flow.run(request.idempotency, async () => this.#order(request));
  }

  #order(request: Spending): PayOrder {
    const { agentReserve, flow } = this.#deps;
    const agentId = request.payer.id;
    return {
      agentId,
      kind: "spend",
      relay: true,
      reserve: async () => {
        const reserved = await agentReserve.reserve({ ...request, kind: "spend" });
        if (reserved.kind !== "reserved") return reserved;
        const { paymentId, remainingAtomic } = reserved;
        const paid = { ...request, paymentId, remainingAtomic };
        return {
          ...reserved,
          deliver: () => flow.settled(paymentId, (proof) => this.#body(paid, proof)),
        };
      },
      isOver: (payment) => flow.isDecided(payment),
      resume: (payment) =>
        flow.settled(payment.id, async (proof) => {
          const remainingAtomic = await this.#deps.remainingOf(agentId);
          const { id: paymentId, amountAtomic, chainId } = payment;
          const paid = { paymentId, amountAtomic, chainId: Number(chainId), remainingAtomic };
          return this.#body({ ...paid, to: request.to }, proof);
        }),
    };
  }

  #body(
    paid: Pick<Spending, "to" | "amountAtomic" | "chainId"> & {
      paymentId: string;
      remainingAtomic: bigint;
    },
    proof: Settled,
  ): Record<string, unknown> {
    return {
      success: true,
      txHash: proof.txHash,
      paymentId: paid.paymentId,
      recipient: getAddress(paid.to),
      amount: formatAtomic(paid.amountAtomic),
      network: this.#deps.networkOf(paid.chainId),
      settledAt: proof.settledAt.toISOString(),
      remaining: formatAtomic(paid.remainingAtomic),
    };
  }
}

/** Reads what an agent wrote, or says which field is wrong and why. */
export function readSpend(
  body: SpendRequest,
  wallet: { walletAddress: Address; network: NetworkFacts | undefined },
): Pick<PayRequest, "chainId" | "asset" | "to" | "amountAtomic" | "memo"> {
  const amount = parsePayable(body.amount);
  if (!amount.ok) throw refuseField("invalid_amount", "body.amount", amount.reason);
  const { network } = wallet;
  if (!network)
    throw refuseField("validation_failed", "body.network", "is not a network of this service");
  const to = readPayee(body.recipient, "body.recipient", {
    walletAddress: wallet.walletAddress,
    asset: network.usdc.address,
  });
  return {
    chainId: network.chainId,
    asset: network.usdc.address.toLowerCase() as Address,
    to,
    amountAtomic: amount.atomic,
    memo: body.memo,
  };
}

/** An address that can be paid: not nobody's, not the token's, not the payer's own. */
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
    throw refuseField("invalid_address", path, "is the token's contract, which cannot be paid");
  return parsed.address;
}

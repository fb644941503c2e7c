/**
 * `request.payment`: what a handler knows about the payment, and how it sets the amount used of a maximum.
 */
import type { PaidEarlier, Receipt, Settled } from "./answers.ts";
import type { Metered } from "./meter.ts";
import { formatAtomic, parseDecimal } from "./money.ts";

/** `inAdvance`: before the handler runs. `metered`: after it. `again`: by an earlier request. */
export type PaymentKind = "inAdvance" | "metered" | "again";

export class Payment implements Receipt {
  /** `settled` before the handler runs, `metered` after it, `again`: paid by an earlier request. */
  readonly kind: "settled" | "metered" | "again";
  readonly payer: string | undefined;
  readonly network: string;
  /** The transaction hash, where it is settled already; else empty. */
  readonly transaction: string;
  /** The amount settled for this request so far, in atomic units. */
  readonly amount: string;
  /** The most that can be charged for this request, in atomic units. */
  readonly maximum: string | undefined;
  readonly #isByUse: boolean;
  #used: bigint | undefined;

  constructor(charge: Settled | Metered | PaidEarlier, isByUse: boolean) {
    this.#isByUse = isByUse;
    this.kind = charge.kind;
    const { payer, network, transaction, amount } =
      charge.kind === "settled" ? charge.receipt : { ...charge, transaction: "", amount: "0" };
    this.payer = payer;
    this.network = network;
    this.transaction = transaction;
    this.amount = amount;
    this.maximum = charge.kind === "metered" ? charge.maximum : undefined;
  }

  /**
   * Sets the amount used: USDC as a decimal string, or atomic units. Once per request, on a route with a
   * maximum; "0" charges nothing. Where nothing is to be charged any more (signed in, paid in full before the
   * handler, or settled for an earlier request with the same proof), it has no effect.
   */
  charge(used: string | bigint): void {
    const parsed =
      typeof used === "string" ? parseDecimal(used) : { ok: true as const, atomic: used };
    if (!parsed.ok) throw new RangeError(`the charged amount ${parsed.reason}`);
    if (!this.#isByUse) throw new Error("this route has a fixed price and cannot charge by use");
    if (this.#used !== undefined) throw new Error("the charge can be set only once");
    if (this.maximum !== undefined && (parsed.atomic < 0n || parsed.atomic > BigInt(this.maximum)))
      throw new RangeError(
        `${formatAtomic(parsed.atomic)} USDC is more than the ${formatAtomic(BigInt(this.maximum))} that the payer signed for`,
      );
    this.#used = parsed.atomic;
  }

  /** Atomic units; undefined while it is not set. */
  get used(): bigint | undefined {
    return this.#used;
  }
}

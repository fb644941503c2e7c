/**
 * Payments up to a maximum (scheme `upto`): verified before the work, charged once the amount used is known.
 */
import type { SettleResponse } from "@x402/core/types";
import {
  notSettled,
  refused,
  settledPayment,
  type KeptResponse,
  type Refused,
  type Settled,
} from "./answers.ts";
import { isRecord } from "./foreign-json.ts";
import type { PresentedPayment } from "./resource.ts";
import { Expiring, type PaywallStore } from "./store.ts";

/** A valid payment of a maximum. It must be ended by `settle` or by `release`. */
export interface Metered {
  kind: "metered";
  headers: Record<string, string>;
  payer: string;
  network: string;
  /** Atomic units. */
  maximum: string;
  /** Identifies the payment that pays for the work. */
  proof: string;
  /** Charged where the handler sets no amount; undefined: it must set one. */
  unlessSet?: bigint;
  /**
   * Charges the amount used, in atomic units. For zero nothing is settled. `response`: what is sent afterwards, for a
   * payer that does not get it.
   */
  settle(amount: bigint, response?: KeptResponse): Promise<Settled | Refused>;
  /** Charges nothing: the work failed. Returns headers that report what happened to the payer's money, if anything. */
  release(): Promise<Record<string, string>>;
}

interface PaymentActions {
  verify(payment: PresentedPayment): Promise<SettleResponse | undefined>;
  settle(payment: PresentedPayment, amount: string): Promise<Settled | Refused>;
}

/** Recorded charges are kept for this long after the payment has expired by its terms. */
const KEPT_MS = 3_600_000;
/** Tolerated clock difference between a payer and this process. */
const CLOCK_SKEW_MS = 60_000;

export class Meter {
  readonly #store: PaywallStore;
  readonly #payments: PaymentActions;
  /**
   * Proofs with work in progress in this process, so that one payment does not do the work twice at a time.
   */
  readonly #busy = new Expiring<symbol>();

  constructor(store: PaywallStore, payments: PaymentActions) {
    this.#store = store;
    this.#payments = payments;
  }

  /** Settles the recorded charge of an earlier request with this proof, or lets the work begin. */
  async begin(
    payment: PresentedPayment,
    beforeSettle: () => Promise<void>,
  ): Promise<Settled | Refused | Metered> {
    const { terms, version, resourceKey: resource } = payment;
    const signer = signerOf(payment);
    if (!signer)
      return refused(notSettled(terms, "invalid_payload", "The payment names no payer."), version);
    const { payer, proof } = signer;
    const duplicate = (message: string): Refused =>
      refused(notSettled(terms, "duplicate_settlement", message, payer), version);
    if (this.#busy.get(proof)) return duplicate("This payment is in use by another request.");
    const lifetimeMs = terms.maxTimeoutSeconds * 1_000;
    if (signer.deadlineMs > Date.now() + lifetimeMs + CLOCK_SKEW_MS)
      return refused(
        notSettled(
          terms,
          "invalid_payload",
          "The payment is valid for longer than requested.",
          payer,
        ),
        version,
      );
    // Held until the payment has expired: the work may take longer than planned.
    const claim = Symbol(proof);
    this.#busy.set(proof, claim, Math.max(signer.deadlineMs, Date.now()) + CLOCK_SKEW_MS);
    const release = () => {
      if (this.#busy.get(proof) === claim) this.#busy.delete(proof);
    };
    let isBegun = false;
    try {
      const kept = await this.#store.findCharge(proof);
      if (kept && kept.resource !== resource)
        return duplicate("This payment was used for a different request.");
      if (kept) {
        await beforeSettle();
        const outcome = await this.#payments.settle(payment, kept.amount);
        return outcome.kind === "settled" ? { ...outcome, lateFor: proof } : outcome;
      }
      const refusal = await this.#payments.verify(payment);
      if (refusal) return refused(refusal, version);
      await beforeSettle();
      isBegun = true;
    } finally {
      if (!isBegun) release();
    }
    const until = new Date(Date.now() + lifetimeMs + KEPT_MS);
    const settle = async (atomic: bigint): Promise<Settled | Refused> => {
      try {
        if (atomic < 0n || atomic > BigInt(terms.amount))
          throw new RangeError("the charge is more than the payer signed for");
        if (atomic === 0n) return nothingUsed(payment, payer);
        const amount = atomic.toString();
        // Recorded before it is sent: after a crash, or when the outcome is unknown, the same amount and no
        // other is charged.
        const kept = await this.#store.keepCharge(proof, { resource, amount }, until);
        if (kept.amount !== amount || kept.resource !== resource)
          return duplicate("This payment was used for a different request.");
        return await this.#payments.settle(payment, amount);
      } finally {
        release();
      }
    };
    const { network, amount: maximum } = terms;
    const released = async () => {
      release();
      return {};
    };
    return {
      kind: "metered",
      headers: {},
      payer,
      network,
      maximum,
      proof,
      settle,
      release: released,
    };
  }
}

/** The protocol's form of a payment of which nothing was charged. No receipt is signed. */
function nothingUsed({ terms, version }: PresentedPayment, payer: string): Settled {
  const { network } = terms;
  const answer = settledPayment(
    { success: true, transaction: "", network, payer, amount: "0" },
    version,
  );
  const receipt = { payer, transaction: "", network, amount: "0" };
  return { kind: "settled", ...answer, receipt, delivered: async () => answer };
}

interface Signer {
  payer: string;
  proof: string;
  /** When the payment expires. */
  deadlineMs: number;
}

const NUMBER = /^(0|[1-9][0-9]{0,77})$/;

/**
 * The payer and the nonce. The chain accepts a nonce once, so it identifies the payment whatever else the
 * payload contains.
 */
function signerOf({ payload, terms }: PresentedPayment): Signer | undefined {
  const { permit2Authorization: signed } = payload.payload;
  if (!isRecord(signed)) return undefined;
  const { from, nonce, deadline } = signed;
  if (typeof from !== "string" || !/^0x[0-9a-fA-F]{40}$/.test(from)) return undefined;
  if (typeof nonce !== "string" || !NUMBER.test(nonce)) return undefined;
  if (typeof deadline !== "string" || !NUMBER.test(deadline)) return undefined;
  const proof = `${terms.network} ${from.toLowerCase()} ${nonce}`;
  return { payer: from, proof, deadlineMs: Number(deadline) * 1_000 };
}

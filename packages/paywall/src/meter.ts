/** Payments of a maximum: looked at before the work, charged when it is known what was used. */
import type { SettleResponse } from "@x402/core/types";
import { notSettled, refused, told, type Refused } from "./answers.ts";
import type { Presented, Settled } from "./charge.ts";
import { isRecord } from "./foreign-json.ts";
import { Expiring, type PaywallStore } from "./store.ts";

/** A good payment of a maximum. It must be ended: by `settle` or by `release`. */
export interface Metered {
  kind: "metered";
  headers: Record<string, string>;
  payer: string;
  network: string;
  /** Atomic units. */
  maximum: string;
  /** By which payment the work is done. */
  proof: string;
  /** Charges what was used, in atomic units; nothing is settled for nothing. */
  settle(amount: bigint): Promise<Settled | Refused>;
  /** Charges nothing: the work failed. */
  release(): void;
}

interface Till {
  verify(shown: Presented): Promise<SettleResponse | undefined>;
  conclude(shown: Presented, amount: string): Promise<Settled | Refused>;
}

/** Beyond the time a payment lives by the terms: what was begun by it is known for so long. */
const KEPT_MS = 3_600_000;
/** A payer's clock may be so far from ours. */
const CLOCKS_APART_MS = 60_000;

export class Meter {
  readonly #store: PaywallStore;
  readonly #till: Till;
  /** Proofs by which work is being done in this process: one payment does not make it work twice at a time. */
  readonly #busy = new Expiring<symbol>();

  constructor(store: PaywallStore, till: Till) {
    this.#store = store;
    this.#till = till;
  }

  /** Settles what an earlier showing of the proof was to be charged, or lets the work begin. */
  async take(
    shown: Presented,
    beforeSettle: () => Promise<void>,
  ): Promise<Settled | Refused | Metered> {
    const { terms, version, sold: resource } = shown;
    const signer = signerOf(shown);
    if (!signer)
      return refused(notSettled(terms, "invalid_payload", "The payment names no payer."), version);
    const { payer, proof } = signer;
    const duplicate = (message: string): Refused =>
      refused(notSettled(terms, "duplicate_settlement", message, payer), version);
    if (this.#busy.get(proof)) return duplicate("This payment is in use by another request.");
    const lifetimeMs = terms.maxTimeoutSeconds * 1_000;
    if (signer.deadlineMs > Date.now() + lifetimeMs + CLOCKS_APART_MS)
      return refused(
        notSettled(
          terms,
          "invalid_payload",
          "The payment is valid for longer than requested.",
          payer,
        ),
        version,
      );
    // Until it is worthless: the work may take longer than was planned.
    const mine = Symbol(proof);
    this.#busy.set(proof, mine, Math.max(signer.deadlineMs, Date.now()) + CLOCKS_APART_MS);
    const release = () => {
      if (this.#busy.get(proof) === mine) this.#busy.delete(proof);
    };
    let isBegun = false;
    try {
      const kept = await this.#store.findCharge(proof);
      if (kept && kept.resource !== resource)
        return duplicate("This payment was used for a different request.");
      if (kept) {
        await beforeSettle();
        const outcome = await this.#till.conclude(shown, kept.amount);
        return outcome.kind === "settled" ? { ...outcome, lateFor: proof } : outcome;
      }
      const refusal = await this.#till.verify(shown);
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
        if (atomic === 0n) return nothingUsed(shown, payer);
        const amount = atomic.toString();
        // Kept before it is sent: after a crash, or when the outcome stays unknown, this and no other amount is asked for.
        const kept = await this.#store.keepCharge(proof, { resource, amount }, until);
        if (kept.amount !== amount || kept.resource !== resource)
          return duplicate("This payment was used for a different request.");
        return await this.#till.conclude(shown, amount);
      } finally {
        release();
      }
    };
    const { network, amount: maximum } = terms;
    return { kind: "metered", headers: {}, payer, network, maximum, proof, settle, release };
  }
}

/** Said as the protocol says it of a payment of which nothing was charged; nothing is delivered that needs a receipt. */
function nothingUsed({ terms, version }: Presented, payer: string): Settled {
  const { network } = terms;
  const answer = told({ success: true, transaction: "", network, payer, amount: "0" }, version);
  const receipt = { payer, transaction: "", network, amount: "0" };
  return { kind: "settled", ...answer, receipt, delivered: async () => answer };
}

interface Signer {
  payer: string;
  proof: string;
  /** When the payment is worthless. */
  deadlineMs: number;
}

const NUMBER = /^(0|[1-9][0-9]{0,77})$/;

/** Who signed, and which of its payments this is: whatever else stands in the payload, this nonce is spent once. */
function signerOf({ payload, terms }: Presented): Signer | undefined {
  const { permit2Authorization: signed } = payload.payload;
  if (!isRecord(signed)) return undefined;
  const { from, nonce, deadline } = signed;
  if (typeof from !== "string" || !/^0x[0-9a-fA-F]{40}$/.test(from)) return undefined;
  if (typeof nonce !== "string" || !NUMBER.test(nonce)) return undefined;
  if (typeof deadline !== "string" || !NUMBER.test(deadline)) return undefined;
  const proof = `${terms.network} ${from.toLowerCase()} ${nonce}`;
  return { payer: from, proof, deadlineMs: Number(deadline) * 1_000 };
}

/**
 * Decides about authorizations that did not go through: proven facts become outcomes (settled, failed, expired), and
 * an unknown outcome stays unknown and waits.
 * Our own transactions are read first.
 * Missing data (a receipt, a log, a nonce) never proves anything.
 */
import type { BlockHeader } from "../../infra/chain/contracts.ts";
import type { Caller } from "../../infra/chain/rpc.ts";
import type { Timings } from "../../core/timings.ts";
import { schemeOf } from "../../schemes/index.ts";
import { gasLimitOf, pendingDebits, type BatchItem } from "./batch.ts";
import { blockAt, type EngineContext } from "./context.ts";
import { authorizationOf, stateProof } from "./receipts.ts";
import { explainUse } from "./used-by.ts";
import { keyOf, type EndProof, type ProvenOutcome, type SettlementRecord } from "./store.ts";
import { isInfrastructureError, type PreflightTerms } from "./preflight.ts";

export interface Refused {
  record: SettlementRecord;
  /** The revert reason of the simulation. Undefined when it ran out of gas or gave none. */
  text: string | undefined;
  /** Mined without effect so often that it is no longer simulated. */
  hasTooManyFaults?: boolean;
}

export type Proof = { outcome: ProvenOutcome } | { retryAfterMs: number };

/**
 * What can be proven about claimed rows whose simulation failed. They are in no pending transaction.
 * `refusedBy` repeats the simulation at one endpoint and returns which of them it rejects.
 */
export async function proveRefused(
  ctx: EngineContext,
  refused: readonly Refused[],
  refusedBy: (endpoint: Caller) => Promise<boolean[]>,
): Promise<{ record: SettlementRecord; proof: Proof }[]> {
  const block = await blockAt(ctx, ctx.network.inclusionDepth);
  const states = await ctx.reads.readAuthorizationStates(
    ctx.rpc,
    refused.map(({ record }) => authorizationOf(record)),
    block.number,
  );
  const isConfirmed = await confirmations(ctx, refused, { block, refusedBy });
  return Promise.all(
    refused.map(async (entry, index) => {
      const { record } = entry;
      if (states[index] === true) {
        const outcome = await explainUse(ctx, record);
        return { record, proof: outcome ? { outcome } : { retryAfterMs: 2_000 } };
      }
      const isUnused = states[index] === false;
      const proof = proofOfRefusal(ctx, entry, { block, isSure: isUnused && isConfirmed(index) });
      if ("outcome" in proof) ctx.refusals.forget(record.id);
      return { record, proof };
    }),
  );
}

/**
 * A rejection of an unused authorization. When is "failed" final?
 * - Facilitated payments: always. We relay them again only if the caller requests it, and they hold no agent's
 *   budget. The signature may be public: if someone settles it later, the row is corrected.
 * - Spends and withdrawals: only before their first transaction was stored for sending. Until then the
 *   signature has never left this database. Afterwards it may be in public calldata, even of a transaction in
 *   which it had no effect, and anyone may relay it until it expires.
 * - An x402 authorization is known to the seller from the start; a refund, to the merchant who signed it.
 * An authorization that may still be used waits until it is used, canceled, or expired at a final block.
 */
function proofOfRefusal(
  ctx: EngineContext,
  { record, text }: Refused,
  { block, isSure }: { block: BlockHeader; isSure: boolean },
): Proof {
  const { reason, message, isOfState } = schemeOf(authorizationOf(record)).explainRevert(text);
  const soonMs = Math.max(ctx.network.blockTimeMs, 500);
  // Used in a block that does not count yet, expired (which is proven at a final block), or not valid yet.
  if (isOfState) return { retryAfterMs: soonMs };
  const isPublic = record.agent_id !== null && record.attempts > 0;
  const isElsewhere = record.kind === "x402" || record.kind === "refund";
  if (record.cancel_signature !== null || isElsewhere || isPublic)
    return { retryAfterMs: retryDelayOf(record, ctx.timings) };
  if (!isSure) return { retryAfterMs: soonMs };
  const { number, hash } = block;
  const proof: EndProof = { kind: "refusal", block: number.toString(), blockHash: hash };
  return {
    outcome: { ...keyOf(record), status: "failed", proof, isFinal: true, reason, message },
  };
}

/**
 * Repeats the simulation at one endpoint, after the pending debits in `ahead`. Returns which items it rejects.
 */
export const refusalsBy =
  (ctx: EngineContext, items: BatchItem[], { from, fees, ahead: underway }: PreflightTerms) =>
  async (endpoint: Caller): Promise<boolean[]> => {
    const [first] = items;
    if (items.length === 1 && first?.sender !== undefined) {
      const gas = gasLimitOf(items);
      const { success } = await ctx.reads.callAs(endpoint, from, first.call, { gas, fees });
      return [!success];
    }
    const ahead = pendingDebits(items, underway);
    const all = [...ahead, ...items];
    const calls = all.map(({ call }) => call);
    const results = await ctx.reads
      .simulate(endpoint, { from, calls, gas: gasLimitOf(all), fees })
      .catch((error: unknown) => {
        // The whole call reverted or ran out of gas, as the transaction of a single item would.
        if (isInfrastructureError(error) || items.length > 1) throw error;
        return [];
      });
    return items.map((_, index) => results[ahead.length + index]?.success !== true);
  };

/** The longer it has been rejected, the less often it is retried. */
const retryDelayOf = ({ created_at }: SettlementRecord, { refusedRestMs }: Timings): number =>
  Math.min(Math.max((Date.now() - created_at.getTime()) / 8, refusedRestMs), 15_000);

/**
 * Remembers the first rejection by a single endpoint until a second check. Losing this costs one more check.
 */
export class Refusals {
  readonly #seen = new Map<string, { block: bigint; atMs: number }>();

  /** Returns whether it was rejected before, as of an older block or long enough ago. */
  isRepeated(id: string, block: bigint, patienceMs: number): boolean {
    const nowMs = performance.now();
    const first = this.#seen.get(id);
    if (first) return block > first.block || nowMs - first.atMs >= patienceMs;
    if (this.#seen.size > 10_000) this.#seen.clear();
    this.#seen.set(id, { block, atMs: nowMs });
    return false;
  }

  forget(id: string): void {
    this.#seen.delete(id);
  }
}

/**
 * A single rejection may come from a lagging endpoint. With several endpoints enough of them must reject; a
 * single endpoint must reject again as of a newer block.
 */
async function confirmations(
  ctx: EngineContext,
  refused: readonly Refused[],
  { block, refusedBy }: { block: BlockHeader; refusedBy: (endpoint: Caller) => Promise<boolean[]> },
): Promise<(index: number) => boolean> {
  if (refused.every(({ hasTooManyFaults }) => hasTooManyFaults)) return () => true;
  if (ctx.rpc.endpoints === 1) {
    const patienceMs = Math.max(ctx.network.blockTimeMs * 3, 1_000);
    return (index) => {
      const entry = refused[index];
      return (
        entry !== undefined &&
        (entry.hasTooManyFaults === true ||
          ctx.refusals.isRepeated(entry.record.id, block.number, patienceMs))
      );
    };
  }
  const { answers, needed } = await ctx.rpc.witnesses(refusedBy);
  if (answers.some((verdicts) => verdicts.includes(false))) ctx.rpc.suspectEndpoint();
  return (index) =>
    answers.filter((verdicts) => verdicts[index] === true).length >= needed &&
    answers.every((verdicts) => verdicts[index] !== false);
}

/**
 * Proves by enough endpoints, at one final block, which of these unused authorizations no later block can use.
 */
export async function proveExpired(
  ctx: EngineContext,
  unused: readonly SettlementRecord[],
  behind: bigint,
): Promise<ProvenOutcome[]> {
  const block = await blockAt(ctx, ctx.network.confirmations, behind);
  // The token requires block time < validBefore, and block time never decreases: an authorization that is
  // unused at this block can never be used, whatever transactions still carry it.
  const late = unused.filter(({ valid_before }) => block.timestampSeconds >= valid_before);
  if (late.length === 0) return [];
  const { answers, needed } = await ctx.rpc.witnesses(async (endpoint) => {
    const header = await ctx.reads.readHeader(endpoint, block.number);
    if (header?.hash !== block.hash) throw new Error("the endpoint is at another block");
    return ctx.reads.readAuthorizationStates(endpoint, late.map(authorizationOf), block.number);
  });
  return late.flatMap((record, index) => {
    const isDenied =
      answers.filter((states) => states[index] === false).length >= needed &&
      answers.every((states) => states[index] !== true);
    if (!isDenied) return [];
    return {
      ...keyOf(record),
      status: "expired" as const,
      proof: stateProof(block),
      isFinal: true,
      reason: schemeOf(authorizationOf(record)).reasonExpired,
      message: `The authorization expired unused at block ${block.number}.`,
    };
  });
}

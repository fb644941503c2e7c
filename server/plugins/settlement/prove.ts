/**
 * Decides about authorizations that did not go through: proven facts become outcomes, the rest waits. Our own
 * transactions are read first. What is absent (a receipt, a log, a nonce) never proves anything.
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
  /** The revert text of the simulation; nothing when it ran out of gas or gave none. */
  text: string | undefined;
  /** Mined without effect so often that it is not simulated any more. */
  isWornOut?: boolean;
}

export type Proof = { outcome: ProvenOutcome } | { retryAfterMs: number };

/**
 * What is proven of rows that are claimed and whose simulation was refused. They are in no live
 * transaction. `refusedBy` repeats the simulation at one endpoint, and returns which of them it refuses.
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
 * A refusal of an unused authorization. When is "failed" final?
 * - Facilitated work: always. We do not relay it again unless its caller requests it again, and no budget of ours
 *   hangs on it. Its signature may be public: a payment that somebody makes of it later corrects the row.
 * - Spends and withdrawals: only before their first transaction was stored to be sent. Until then their
 *   signature has never left this database. From then on it may stand in public calldata, also of a
 *   transaction in which it had no effect, and anyone may relay it until it expires.
 * - An x402 authorization is in a seller's hands from the start; a refund in those of the merchant who signed it.
 * What may still be used waits until it is used, canceled, or past its time at a final block.
 */
function proofOfRefusal(
  ctx: EngineContext,
  { record, text }: Refused,
  { block, isSure }: { block: BlockHeader; isSure: boolean },
): Proof {
  const { reason, message, isOfState } = schemeOf(authorizationOf(record)).explainRevert(text);
  const soonMs = Math.max(ctx.network.blockTimeMs, 500);
  // Used, but not yet in a block that counts; past its time, which is proven at a final block; or too early.
  if (isOfState) return { retryAfterMs: soonMs };
  const isPublic = record.agent_id !== null && record.attempts > 0;
  const isElsewhere = record.kind === "x402" || record.kind === "refund";
  if (record.cancel_signature !== null || isElsewhere || isPublic)
    return { retryAfterMs: restOf(record, ctx.timings) };
  if (!isSure) return { retryAfterMs: soonMs };
  const { number, hash } = block;
  const proof: EndProof = { kind: "refusal", block: number.toString(), blockHash: hash };
  return {
    outcome: { ...keyOf(record), status: "failed", proof, isFinal: true, reason, message },
  };
}

/** Simulates again at one endpoint, behind the debits `ahead`: which items does it refuse? */
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
        // The whole call reverted or ran out of gas: so would a lone item's transaction.
        if (isInfrastructureError(error) || items.length > 1) throw error;
        return [];
      });
    return items.map((_, index) => results[ahead.length + index]?.success !== true);
  };

/** The longer it has been refused, the less often it is tried. */
const restOf = ({ created_at }: SettlementRecord, { refusedRestMs }: Timings): number =>
  Math.min(Math.max((Date.now() - created_at.getTime()) / 8, refusedRestMs), 15_000);

/** First refusals by one endpoint, remembered until a second look. Losing them costs one more look. */
export class Refusals {
  readonly #seen = new Map<string, { block: bigint; atMs: number }>();

  /** Whether it was refused before, as of an older block or long enough ago. */
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
 * One endpoint's refusal may be a lagging one's: two of them must refuse where there are two, and a lone
 * one must refuse again as of a newer block.
 */
async function confirmations(
  ctx: EngineContext,
  refused: readonly Refused[],
  { block, refusedBy }: { block: BlockHeader; refusedBy: (endpoint: Caller) => Promise<boolean[]> },
): Promise<(index: number) => boolean> {
  if (refused.every(({ isWornOut }) => isWornOut)) return () => true;
  if (ctx.rpc.endpoints === 1) {
    const patienceMs = Math.max(ctx.network.blockTimeMs * 3, 1_000);
    return (index) => {
      const entry = refused[index];
      return (
        entry !== undefined &&
        (entry.isWornOut === true ||
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

/** Which of these unused authorizations no block can use any more, by enough witnesses of one final block. */
export async function proveExpired(
  ctx: EngineContext,
  unused: readonly SettlementRecord[],
  behind: bigint,
): Promise<ProvenOutcome[]> {
  const block = await blockAt(ctx, ctx.network.confirmations, behind);
  // The token demands block time < validBefore, and block time never goes back: what is unused now is over
  // for good, whatever transactions still carry it.
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

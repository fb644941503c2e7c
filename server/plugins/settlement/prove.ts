/**
 * Decides about authorizations that did not go through in a transaction that we follow: proven facts become outcomes
 * (settled, failed, expired), and an unknown outcome stays unknown and waits. Who used an authorization is read from
 * our own transactions first, then from the chain's logs and the contract's state.
 * Missing data (a receipt, a log, a nonce) never proves anything.
 */
import * as reads from "../../infra/chain/contracts.ts";
import type { BlockHeader } from "../../infra/chain/contracts.ts";
import { classifyChainError } from "../../infra/chain/errors.ts";
import type { Caller } from "../../infra/chain/rpc.ts";
import type { Timings } from "../../core/timings.ts";
import { schemeOf } from "../../schemes/index.ts";
import { gasLimitOf, pendingDebits, type BatchItem } from "./batch.ts";
import { blockAt, type EngineContext } from "./context.ts";
import { isOurTransaction } from "./lane-store.ts";
import { isInfrastructureError, type PreflightTerms } from "./preflight.ts";
import {
  amountIn,
  depthOf,
  findingIn,
  findingInOwnTransactions,
  proofOf,
  stateProof,
  type Finding,
} from "./receipts.ts";
import { keyOf, saveSearch, usesAlike } from "./store.ts";
import {
  REASON_CANCELED,
  type EndProof,
  type ProvenOutcome,
  type SettlementRecord,
} from "./types.ts";

interface Refused {
  record: SettlementRecord;
  /** The revert reason of the simulation. Undefined when it ran out of gas or gave none. */
  text: string | undefined;
  /** Mined without effect so often that it is no longer simulated. */
  hasTooManyFaults?: boolean;
}

type Proof = { outcome: ProvenOutcome } | { retryAfterMs: number };

/**
 * What can be proven about claimed rows whose simulation failed. They are in no pending transaction.
 * `refusedBy` repeats the simulation at one endpoint and returns which of them it rejects; `before` remembers
 * earlier rejections.
 */
export async function proveRefused(
  ctx: EngineContext,
  refused: readonly Refused[],
  before: Refusals,
  refusedBy: (endpoint: Caller) => Promise<boolean[]>,
): Promise<{ record: SettlementRecord; proof: Proof }[]> {
  const block = await blockAt(ctx, ctx.network.inclusionDepth);
  const states = await reads.readAuthorizationStates(
    ctx.rpc,
    refused.map(({ record }) => record.authorization),
    block.number,
  );
  const isConfirmed = await confirmations(ctx, refused, { block, before, refusedBy });
  return Promise.all(
    refused.map(async (entry, index) => {
      const { record } = entry;
      if (states[index] === true) {
        const outcome = await explainUse(ctx, record);
        return { record, proof: outcome ? { outcome } : { retryAfterMs: 2_000 } };
      }
      const isUnused = states[index] === false;
      const proof = proofOfRefusal(ctx, entry, { block, isSure: isUnused && isConfirmed(index) });
      if ("outcome" in proof) before.forget(record.id);
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
  const { reason, message, isOfState } = schemeOf(record.authorization).explainRevert(text);
  const soonMs = Math.max(ctx.network.blockTimeMs, 500);
  // Used in a block that does not count yet, expired (which is proven at a final block), or not valid yet.
  if (isOfState) return { retryAfterMs: soonMs };
  const isPublic = record.agentId !== null && record.attempts > 0;
  const isElsewhere = record.kind === "x402" || record.kind === "refund";
  if (record.cancelSignature !== null || isElsewhere || isPublic)
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
      const { success } = await reads.callAs(endpoint, from, first.call, { gas, fees });
      return [!success];
    }
    const ahead = pendingDebits(items, underway);
    const all = [...ahead, ...items];
    const calls = all.map(({ call }) => call);
    const results = await reads
      .simulate(endpoint, { from, calls, gas: gasLimitOf(all), fees })
      .catch((error: unknown) => {
        // The whole call reverted or ran out of gas, as the transaction of a single item would.
        if (isInfrastructureError(error) || items.length > 1) throw error;
        return [];
      });
    return items.map((_, index) => results[ahead.length + index]?.success !== true);
  };

/** The longer it has been rejected, the less often it is retried. */
const retryDelayOf = ({ createdAt }: SettlementRecord, { refusedRestMs }: Timings): number =>
  Math.min(Math.max((Date.now() - createdAt.getTime()) / 8, refusedRestMs), 15_000);

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
  {
    block,
    before,
    refusedBy,
  }: {
    block: BlockHeader;
    before: Refusals;
    refusedBy: (endpoint: Caller) => Promise<boolean[]>;
  },
): Promise<(index: number) => boolean> {
  if (refused.every(({ hasTooManyFaults }) => hasTooManyFaults)) return () => true;
  if (ctx.rpc.endpoints === 1) {
    const patienceMs = Math.max(ctx.network.blockTimeMs * 3, 1_000);
    return (index) => {
      const entry = refused[index];
      return (
        entry !== undefined &&
        (entry.hasTooManyFaults === true ||
          before.isRepeated(entry.record.id, block.number, patienceMs))
      );
    };
  }
  const refs = refused.map(({ record }) => record.authorization);
  const { answers, needed } = await ctx.rpc.witnesses(async (endpoint) => {
    const [rejects, states] = await Promise.all([
      refusedBy(endpoint),
      reads.readAuthorizationStates(endpoint, refs, "latest"),
    ]);
    // An endpoint that is ahead of the others rejects what it sees as used: that is no reason to refuse.
    return rejects.map((isRejected, index) => isRejected && states[index] === false);
  });
  if (answers.some((verdicts) => verdicts.includes(false))) ctx.rpc.suspectEndpoint();
  return (index) =>
    answers.length >= needed && answers.every((verdicts) => verdicts[index] === true);
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
  const late = unused.filter(
    ({ authorization }) => block.timestampSeconds >= authorization.validBefore,
  );
  if (late.length === 0) return [];
  const { answers, needed } = await ctx.rpc.witnesses(async (endpoint) => {
    const header = await reads.readHeader(endpoint, block.number);
    if (header?.hash !== block.hash) throw new Error("the endpoint is at another block");
    return reads.readAuthorizationStates(
      endpoint,
      late.map(({ authorization }) => authorization),
      block.number,
    );
  });
  // The endpoint in use shows them as unused.
  if (answers.some((states) => states.includes(true))) ctx.rpc.suspectEndpoint();
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
      reason: schemeOf(record.authorization).reasonExpired,
      message: `The authorization expired unused at block ${block.number}.`,
    };
  });
}

/**
 * Explains who used a used authorization. Anyone may relay one, so another party's transaction that moved
 * exactly this amount is a settlement. Undefined when it is not known yet.
 */
export async function explainUse(
  ctx: EngineContext,
  record: SettlementRecord,
): Promise<ProvenOutcome | undefined> {
  const head = ctx.heads.head ?? (await ctx.heads.refresh());
  const ours = await findingInOwnTransactions(ctx, record, head.number);
  if (ours) return outcomeOfUse(record, ours, false);
  const before = mayBeReplay(record)
    ? await stateWhenAccepted(ctx, record, head.number)
    : undefined;
  if (before?.wasUsed)
    return {
      ...keyOf(record),
      ...usedBefore(record),
      proof: stateProof(before.block),
      isFinal: true,
    };
  if (!schemeOf(record.authorization).isNamedInLogs) {
    const place = await placeOfUse(ctx, record, head.number);
    if (place) return outcomeAt(ctx, record, place, head.number);
  }
  const isLater = record.agentId !== null || before?.wasUsed === false;
  const found = await searchUse(ctx, record, { head: head.number, isLater });
  return found && outcomeOfUse(record, found, !(await isOurs(ctx, found)));
}

/**
 * Kinds that unlock a resource. A refund unlocks nothing: whoever relayed it, the payer has the money back.
 */
const mayBeReplay = ({ kind, agentId }: SettlementRecord): boolean =>
  agentId === null && kind !== "refund";

const isOurs = (ctx: EngineContext, { receipt }: Finding): Promise<boolean> =>
  isOurTransaction(ctx.pool, receipt.transactionHash);

/**
 * Finds the block in which it became used, from the contract state before and after. Undefined when a node no
 * longer has these states: then only the logs can show it.
 */
async function placeOfUse(
  ctx: EngineContext,
  record: SettlementRecord,
  head: bigint,
): Promise<BlockHeader | undefined> {
  const { authorization } = record;
  const isUsedAt = async (block: bigint): Promise<boolean> => {
    const [isUsed] = await reads.readAuthorizationStates(ctx.rpc, [authorization], block);
    if (isUsed === undefined) throw new Error("the contract does not return whether it is used");
    return isUsed;
  };
  try {
    let low = record.acceptedBlock ?? 0n;
    let high = head;
    if (!(await isUsedAt(high)) || (await isUsedAt(low))) return undefined;
    while (low + 1n < high) {
      const middle = (low + high) / 2n;
      if (await isUsedAt(middle)) high = middle;
      else low = middle;
    }
    return await reads.readHeader(ctx.rpc, high);
  } catch (error) {
    if (classifyChainError(error).kind !== "unreachable") throw error;
    return undefined;
  }
}

/**
 * Decides by the receipts of this one block. If no transaction in it shows the payment or its trace, something
 * else used the nonce; that is final when the block is.
 */
async function outcomeAt(
  ctx: EngineContext,
  record: SettlementRecord,
  block: BlockHeader,
  head: bigint,
): Promise<ProvenOutcome | undefined> {
  const receipts = await reads.readBlockReceipts(ctx.rpc, block);
  if (!receipts) return undefined;
  const { authorization } = record;
  const scheme = schemeOf(authorization);
  const payer = authorization.from.slice(2).toLowerCase();
  let isWhole = true;
  const unread: Finding[] = [];
  for (const receipt of receipts) {
    // Every use names the payer in a log.
    const isCandidate = receipt.logs.some(({ topics }) =>
      topics.some((topic) => topic.toLowerCase().endsWith(payer)),
    );
    if (!isCandidate) continue;
    const found = await findingIn(ctx, receipt.transactionHash, authorization, head);
    // A node that returns the receipt may still return nothing for the transaction itself.
    if (!found) isWhole = false;
    else if (found.fate !== "untouched")
      return outcomeOfUse(record, found, !(await isOurs(ctx, found)));
    if (found)
      for (const charged of scheme.unreadIn?.(found.receipt, authorization) ?? [])
        unread.push({ ...found, fate: "paid", charged });
  }
  if (!isWhole) return undefined;
  // An agent's wallet signed this once, and the contract moves nothing else with it: a matching transfer from
  // the wallet was this payment or one that looks the same. None of them is proven not to have happened.
  const isAgents = record.agentId !== null && scheme.unreadIn !== undefined;
  const share = isAgents ? await shareOf(ctx, record, block.number, unread) : undefined;
  if (share) return outcomeOfUse(record, share, true);
  if (unread[0]) {
    const { transactionHash: hash } = unread[0].receipt;
    const message = "a payment was relayed without proof of its outcome; it stays unknown";
    ctx.log.error({ settlement: record.id, hash }, message);
    return undefined;
  }
  if (isAgents) return undefined;
  if (depthOf(head, block.number) < ctx.network.confirmations) return undefined;
  return {
    ...keyOf(record),
    status: "failed",
    proof: stateProof(block),
    isFinal: true,
    reason: scheme.reasonUsed,
    message: `Another transaction used the nonce in block ${block.number}.`,
  };
}

/**
 * Of traces that look the same, the one assigned to this payment; only when the same number of our payments
 * were used in that block. The smallest trace is assigned to the smallest maximum, and so on, in whatever order
 * they are checked.
 */
async function shareOf(
  ctx: EngineContext,
  record: SettlementRecord,
  block: bigint,
  unread: readonly Finding[],
): Promise<Finding | undefined> {
  const alike = await usesAlike(ctx.pool, record, block);
  const left = unread.toSorted((a, b) => Number((a.charged ?? 0n) - (b.charged ?? 0n)));
  const isOpen = ({ status }: SettlementRecord) => status === "queued" || status === "submitted";
  for (const { txHash, authorization } of alike.filter((one) => !isOpen(one))) {
    const ownIndex = left.findIndex(
      ({ receipt, charged }) =>
        receipt.transactionHash === txHash && charged === authorization.value,
    );
    if (ownIndex !== -1) left.splice(ownIndex, 1);
  }
  const open = alike.filter(isOpen);
  const refs = open.map(({ authorization }) => authorization);
  const [before, after] = await Promise.all([
    reads.readAuthorizationStates(ctx.rpc, refs, block - 1n),
    reads.readAuthorizationStates(ctx.rpc, refs, block),
  ]);
  if ([...before, ...after].includes(undefined)) return undefined;
  const used = open.filter((_, index) => after[index] === true && before[index] === false);
  const mine = used.findIndex(({ id }) => id === record.id);
  return left.length === used.length ? left[mine] : undefined;
}

/** Used before it was presented here: a replay, which must not unlock a second resource. */
const usedBefore = (record: SettlementRecord) => ({
  status: "failed" as const,
  reason: schemeOf(record.authorization).reasonUsed,
  message: "The authorization was used before it was presented here.",
});

function outcomeOfUse(
  record: SettlementRecord,
  { fate, receipt, blockNumber, isFinal, charged }: Finding,
  byOther: boolean,
): ProvenOutcome | undefined {
  const proven = { ...keyOf(record), proof: proofOf(receipt), isFinal };
  const isReplay =
    byOther &&
    mayBeReplay(record) &&
    record.acceptedBlock !== null &&
    blockNumber <= record.acceptedBlock;
  if (fate === "paid" && !isReplay)
    return { ...proven, status: "settled", byOther, ...amountIn(charged) };
  // All other outcomes release money or refuse a payment for good, so they must be final.
  if (fate === "untouched" || !isFinal) return undefined;
  if (fate === "paid") return { ...proven, ...usedBefore(record) };
  const { reasonUsed } = schemeOf(record.authorization);
  return fate === "canceled"
    ? {
        ...proven,
        status: "failed",
        reason: record.agentId === null ? reasonUsed : REASON_CANCELED,
        message: "The authorization was canceled on chain.",
      }
    : {
        ...proven,
        status: "failed",
        reason: reasonUsed,
        message: "The nonce was used by another authorization of the same signer.",
      };
}

/** Only for third parties' payments: ours cannot have been used before we signed them. */
async function stateWhenAccepted(
  ctx: EngineContext,
  record: SettlementRecord,
  head: bigint,
): Promise<{ wasUsed: boolean | undefined; block: BlockHeader } | undefined> {
  const number = record.acceptedBlock;
  if (number === null) return undefined;
  if (number > head - BigInt(ctx.network.confirmations - 1)) return undefined;
  try {
    const [[wasUsed], block] = await Promise.all([
      reads.readAuthorizationStates(ctx.rpc, [record.authorization], number),
      reads.readHeader(ctx.rpc, number),
    ]);
    return block && { wasUsed, block };
  } catch (error) {
    // Nodes discard old states: then the event must be found.
    if (classifyChainError(error).kind !== "unreachable") throw error;
    return undefined;
  }
}

/** For rows accepted before the newest block was stored with them. */
const UNKNOWN_AGE_BLOCKS = 50_000n;

/**
 * Searches the logs for the event: upwards from where it was accepted, then (unless it can only be later)
 * downwards to where it became valid.
 * Each round reads a limited range, and the row stores the progress. If both ends are reached without a result,
 * the logs lag behind the state, and the search starts again.
 */
async function searchUse(
  ctx: EngineContext,
  record: SettlementRecord,
  { head, isLater }: { head: bigint; isLater: boolean },
): Promise<Finding | undefined> {
  const { authorization } = record;
  const { spanBlocks } = ctx.search;
  const known = record.acceptedBlock ?? head - UNKNOWN_AGE_BLOCKS;
  const start = known > 0n ? known : 0n;
  let up = record.searchedUp ?? start;
  let down = record.searchedDown ?? start - 1n;
  for (let span = 0; span < ctx.search.spansPerRound; span += 1) {
    const isUp = up <= head;
    if (!isUp && (isLater || down < 0n)) break;
    const low = isUp ? up : maxOf(down - spanBlocks + 1n, 0n);
    const high = isUp ? minOf(up + spanBlocks - 1n, head) : down;
    const range = { from: low, to: high };
    for (const hash of await reads.findAuthorizationUse(ctx.rpc, authorization, range)) {
      const found = await findingIn(ctx, hash, authorization, head);
      // Not deep enough to report, or a log without its transaction: it is checked again.
      if (!found) return undefined;
      if (found.fate !== "untouched") return found;
    }
    if (isUp) up = high + 1n;
    else down = (await isBeforeValid(ctx, record, low)) ? -1n : low - 1n;
  }
  const isThrough = up > head && (isLater || down < 0n);
  await saveSearch(ctx.pool, record, isThrough ? { up: null, down: null } : { up, down });
  return undefined;
}

async function isBeforeValid(
  ctx: EngineContext,
  record: SettlementRecord,
  number: bigint,
): Promise<boolean> {
  const header = await reads.readHeader(ctx.rpc, number);
  return header !== undefined && header.timestampSeconds < record.authorization.validAfter;
}

const minOf = (one: bigint, other: bigint): bigint => (one < other ? one : other);
const maxOf = (one: bigint, other: bigint): bigint => (one > other ? one : other);

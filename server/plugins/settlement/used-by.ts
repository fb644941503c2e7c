/**
 * Finds out who used an authorization: from our own transactions first, then from the chain's logs and the
 * contract's state.
 * Missing data (a receipt, a log) never proves anything.
 */
import type { BlockHeader } from "../../infra/chain/contracts.ts";
import { classifyChainError } from "../../infra/chain/errors.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { EngineContext } from "./context.ts";
import {
  amountIn,
  authorizationOf,
  depthOf,
  findingIn,
  findingInOwnTransactions,
  proofOf,
  stateProof,
  type Finding,
} from "./receipts.ts";
import { keyOf, type ProvenOutcome, type SettlementRecord } from "./store.ts";
import { REASON_CANCELED } from "./types.ts";

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
  if (!schemeOf(authorizationOf(record)).isNamedInLogs) {
    const place = await placeOfUse(ctx, record, head.number);
    if (place) return outcomeAt(ctx, record, place, head.number);
  }
  const isLater =
    record.kind !== "refund" && (record.agent_id !== null || before?.wasUsed === false);
  const found = await searchUse(ctx, record, { head: head.number, isLater });
  return found && outcomeOfUse(record, found, !(await isOurs(ctx, found)));
}

/**
 * Kinds that unlock a resource. A refund unlocks nothing: whoever relayed it, the payer has the money back.
 */
const mayBeReplay = ({ kind, agent_id }: SettlementRecord): boolean =>
  agent_id === null && kind !== "refund";

const isOurs = (ctx: EngineContext, { receipt }: Finding): Promise<boolean> =>
  ctx.transactions.isOurTransaction(ctx.pool, receipt.transactionHash);

/**
 * Finds the block in which it became used, from the contract state before and after. Undefined when a node no
 * longer has these states: then only the logs can show it.
 */
async function placeOfUse(
  ctx: EngineContext,
  record: SettlementRecord,
  head: bigint,
): Promise<BlockHeader | undefined> {
  const authorization = authorizationOf(record);
  const isUsedAt = async (block: bigint): Promise<boolean> => {
    const [isUsed] = await ctx.reads.readAuthorizationStates(ctx.rpc, [authorization], block);
    if (isUsed === undefined) throw new Error("the contract does not return whether it is used");
    return isUsed;
  };
  try {
    let low = record.accepted_block ?? 0n;
    let high = head;
    if (!(await isUsedAt(high)) || (await isUsedAt(low))) return undefined;
    while (low + 1n < high) {
      const middle = (low + high) / 2n;
      if (await isUsedAt(middle)) high = middle;
      else low = middle;
    }
    return await ctx.reads.readHeader(ctx.rpc, high);
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
  const receipts = await ctx.reads.readBlockReceipts(ctx.rpc, block);
  if (!receipts) return undefined;
  const authorization = authorizationOf(record);
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
  const isAgents = record.agent_id !== null && scheme.unreadIn !== undefined;
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
  const alike = await ctx.watched.usesAlike(ctx.pool, record, block);
  const left = unread.toSorted((a, b) => Number((a.charged ?? 0n) - (b.charged ?? 0n)));
  const isOpen = ({ status }: SettlementRecord) => status === "queued" || status === "submitted";
  for (const { tx_hash, value } of alike.filter((one) => !isOpen(one))) {
    const ownIndex = left.findIndex(
      ({ receipt, charged }) => receipt.transactionHash === tx_hash && charged === value,
    );
    if (ownIndex !== -1) left.splice(ownIndex, 1);
  }
  const open = alike.filter(isOpen);
  const refs = open.map(authorizationOf);
  const [before, after] = await Promise.all(
    [block - 1n, block].map((at) => ctx.reads.readAuthorizationStates(ctx.rpc, refs, at)),
  );
  if ([...(before ?? []), ...(after ?? [])].includes(undefined)) return undefined;
  const used = open.filter((_, index) => after?.[index] === true && before?.[index] === false);
  const mine = used.findIndex(({ nonce }) => nonce === record.nonce);
  return left.length === used.length ? left[mine] : undefined;
}

/** Used before it was presented here: a replay, which must not unlock a second resource. */
const usedBefore = (record: SettlementRecord) => ({
  status: "failed" as const,
  reason: schemeOf(authorizationOf(record)).reasonUsed,
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
    record.accepted_block !== null &&
    blockNumber <= record.accepted_block;
  if (fate === "paid" && !isReplay)
    return { ...proven, status: "settled", byOther, ...amountIn(charged) };
  // All other outcomes release money or refuse a payment for good, so they must be final.
  if (fate === "untouched" || !isFinal) return undefined;
  if (fate === "paid") return { ...proven, ...usedBefore(record) };
  const { reasonUsed } = schemeOf(authorizationOf(record));
  return fate === "canceled"
    ? {
        ...proven,
        status: "failed",
        reason: record.agent_id === null ? reasonUsed : REASON_CANCELED,
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
): Promise<{ wasUsed: boolean; block: BlockHeader } | undefined> {
  const number = record.accepted_block;
  if (record.agent_id !== null || number === null) return undefined;
  if (number > head - BigInt(ctx.network.confirmations - 1)) return undefined;
  try {
    const [[wasUsed], block] = await Promise.all([
      ctx.reads.readAuthorizationStates(ctx.rpc, [authorizationOf(record)], number),
      ctx.reads.readHeader(ctx.rpc, number),
    ]);
    return wasUsed === undefined || !block ? undefined : { wasUsed, block };
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
  const authorization = authorizationOf(record);
  const { spanBlocks } = ctx.search;
  const known = record.accepted_block ?? head - UNKNOWN_AGE_BLOCKS;
  const start = known > 0n ? known : 0n;
  let up = record.searched_up ?? start;
  let down = record.searched_down ?? start - 1n;
  for (let span = 0; span < ctx.search.spansPerRound; span += 1) {
    const isUp = up <= head;
    if (!isUp && (isLater || down < 0n)) break;
    const low = isUp ? up : maxOf(down - spanBlocks + 1n, 0n);
    const high = isUp ? minOf(up + spanBlocks - 1n, head) : down;
    const range = { from: low, to: high };
    for (const hash of await ctx.reads.findAuthorizationUse(ctx.rpc, authorization, range)) {
      const found = await findingIn(ctx, hash, authorization, head);
      // Not deep enough to report, or a log without its transaction: it is checked again.
      if (!found) return undefined;
      if (found.fate !== "untouched") return found;
    }
    if (isUp) up = high + 1n;
    else down = (await isBeforeValid(ctx, record, low)) ? -1n : low - 1n;
  }
  const isThrough = up > head && (isLater || down < 0n);
  await ctx.watched.saveSearch(
    ctx.pool,
    record,
    isThrough ? { up: null, down: null } : { up, down },
  );
  return undefined;
}

async function isBeforeValid(
  ctx: EngineContext,
  record: SettlementRecord,
  number: bigint,
): Promise<boolean> {
  const header = await ctx.reads.readHeader(ctx.rpc, number);
  return header !== undefined && header.timestampSeconds < record.valid_after;
}

const minOf = (one: bigint, other: bigint): bigint => (one < other ? one : other);
const maxOf = (one: bigint, other: bigint): bigint => (one > other ? one : other);

/** Decides about authorizations that did not go through: proven facts become outcomes, the rest waits. */
import { toRow, type ProvenOutcome, type SettlementRecord } from "./store.ts";
import { finalTag, type EngineContext } from "./context.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import { REASON_CANCELED } from "./types.ts";

export interface Refused {
  record: SettlementRecord;
  /** The revert text of the simulation; nothing when it ran out of gas or gave none. */
  text: string | undefined;
}

export type Proof = { outcome: ProvenOutcome } | { retryAfterMs: number };

export const authorizationOf = (record: SettlementRecord): SignedAuthorization =>
  toRow(record).authorization;

/** What an outcome names its row by. */
export const keyOf = ({ from_address: from, asset, nonce }: SettlementRecord) => ({
  from,
  asset,
  nonce,
});

/** What is proven of rows that are claimed and whose simulation was refused. They are in no live transaction. */
export async function proveRefused(
  ctx: EngineContext,
  refused: readonly Refused[],
): Promise<{ record: SettlementRecord; proof: Proof }[]> {
  const states = await ctx.reads.readAuthorizationStates(
    ctx.rpc,
    refused.map(({ record }) => authorizationOf(record)),
    finalTag(ctx),
  );
  return Promise.all(
    refused.map(async ({ record, text }, index) => {
      const state = states[index];
      if (state?.used) {
        const outcome = await explainUse(ctx, record, state.blockNumber);
        return { record, proof: outcome ? { outcome } : { retryAfterMs: 2_000 } };
      }
      return { record, proof: proofOfRefusal(ctx, record, text) };
    }),
  );
}

/**
 * A refusal of something unused. Who may be told "failed" for good?
 * - Facilitated work: always. We will not relay it again, and no budget of ours hangs on it.
 * - Spends and withdrawals: also. Their signatures never left this database except inside our own
 *   transactions, and a row is only here while no transaction that carries it can still be mined (it is
 *   queued, and goes back to queued only when its transaction is final). So not relaying it means never.
 * - An x402 authorization is in a seller's hands, who may present it until it expires: the refusal of
 *   this moment proves nothing. It waits until it is used, canceled or past its time.
 */
function proofOfRefusal(
  ctx: EngineContext,
  record: SettlementRecord,
  text: string | undefined,
): Proof {
  const key = keyOf(record);
  const { reason, message, isOfState } = schemeOf(authorizationOf(record)).explainRevert(text);
  const blockMs = ctx.network.blockTimeMs;
  // Used, but not yet in a final block; or past its time, which is proven at a final block.
  if (isOfState) return { retryAfterMs: Math.max(blockMs, 500) };
  if (record.cancel_signature !== null || record.kind === "x402") return { retryAfterMs: 2_000 };
  return { outcome: { ...key, status: "failed", reason, message } };
}

/**
 * An authorization is used at a final block: by whom? Anyone may relay one, so another's transaction that
 * moved exactly this is a settlement. Nothing when the event cannot be found yet.
 */
export async function explainUse(
  ctx: EngineContext,
  record: SettlementRecord,
  atBlock: bigint,
): Promise<ProvenOutcome | undefined> {
  const key = keyOf(record);
  const authorization = authorizationOf(record);
  const scheme = schemeOf(authorization);
  const ageMs = Math.max(Date.now() - record.created_at.getTime(), 0) + 600_000;
  const span = BigInt(Math.ceil(ageMs / Math.min(ctx.network.blockTimeMs, 250)));
  const use = await ctx.reads.findAuthorizationUse(ctx.rpc, authorization, {
    from: atBlock > span ? atBlock - span : 0n,
    to: atBlock,
  });
  if (!use) {
    if (record.agent_id !== null) return undefined;
    return {
      ...key,
      status: "failed",
      reason: scheme.reasonUsed,
      message: "The authorization was used before it was presented here.",
    };
  }
  const where = { hash: use.txHash, block: use.blockNumber.toString() };
  if (use.event === "canceled")
    return {
      ...key,
      ...where,
      status: "failed",
      reason: record.agent_id === null ? scheme.reasonUsed : REASON_CANCELED,
      message: "The authorization was canceled on chain.",
    };
  const receipt = await ctx.reads.readReceipt(ctx.rpc, use.txHash);
  if (!receipt) return undefined;
  const fate = scheme.fateIn(receipt.logs, authorization);
  if (fate === "used_otherwise")
    return {
      ...key,
      ...where,
      status: "failed",
      reason: scheme.reasonUsed,
      message: "The nonce was used by another authorization of the same signer.",
    };
  if (fate !== "paid") return undefined;
  const byOther = !(await ctx.transactions.isOurTransaction(ctx.pool, use.txHash));
  if (byOther && record.agent_id === null) {
    const block = await ctx.reads.readBlockTimestamp(ctx.rpc, use.blockNumber);
    // Used before it was presented here: a replay, which must not unlock a second resource. Used after:
    // somebody was faster with the payment we were asked to make. Block times are whole seconds.
    if (Number(block) * 1_000 + 999 < record.created_at.getTime())
      return {
        ...key,
        ...where,
        status: "failed",
        reason: scheme.reasonUsed,
        message: "The authorization was used before it was presented here.",
      };
  }
  return { ...key, ...where, status: "settled", byOther };
}

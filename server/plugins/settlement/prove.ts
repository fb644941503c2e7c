/** Decides about authorizations that did not go through: proven facts become outcomes, the rest waits. */
import type { ProvenOutcome, SettlementRecord } from "./store.ts";
import { classifyTokenRefusal, REASON_CODES, type TokenRefusal } from "../../infra/chain/errors.ts";
import { finalTag, type EngineContext } from "./context.ts";
import { fateIn } from "../../schemes/exact-eip3009/fate.ts";
import { REASON_CANCELED } from "./types.ts";

export interface Refused {
  record: SettlementRecord;
  /** The revert text of the simulation; nothing when it ran out of gas or gave none. */
  text: string | undefined;
}

export type Verdict = { outcome: ProvenOutcome } | { retryAfterMs: number };

const keyOf = (record: SettlementRecord) => ({
  from: record.from_address,
  asset: record.asset,
  nonce: record.nonce,
});

/** Judges rows that are claimed and whose simulation was refused. They are in no live transaction. */
export async function judgeRefused(
  ctx: EngineContext,
  refused: readonly Refused[],
): Promise<{ record: SettlementRecord; verdict: Verdict }[]> {
  const states = await ctx.reads.readAuthorizationStates(
    ctx.rpc,
    refused.map(({ record }) => keyOf(record)),
    finalTag(ctx),
  );
  return Promise.all(
    refused.map(async ({ record, text }, index) => {
      const state = states[index];
      const refusal = classifyTokenRefusal(text);
      if (state?.used) {
        const outcome = await explainUse(ctx, record, state.blockNumber);
        return { record, verdict: outcome ? { outcome } : { retryAfterMs: 2_000 } };
      }
      return { record, verdict: verdictOn(ctx, record, refusal, text) };
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
function verdictOn(
  ctx: EngineContext,
  record: SettlementRecord,
  refusal: TokenRefusal,
  text: string | undefined,
): Verdict {
  const blockMs = ctx.network.blockTimeMs;
  // Used, but not yet in a final block; or past its time, which the watch proves at a final block.
  if (refusal === "used" || refusal === "expired") return { retryAfterMs: Math.max(blockMs, 500) };
  if (record.cancel_signature !== null || record.kind === "x402") return { retryAfterMs: 2_000 };
  return {
    outcome: {
      ...keyOf(record),
      status: "failed",
      reason: REASON_CODES[refusal],
      message: SENTENCES[refusal] + (text === undefined ? "" : ` (${text.slice(0, 200)})`),
    },
  };
}

const SENTENCES: Readonly<Record<TokenRefusal, string>> = {
  used: "The authorization's nonce has been used.",
  expired: "The authorization is past its validBefore.",
  not_yet_valid: "The authorization is not valid yet.",
  insufficient_balance:
    "The payer's balance does not cover the amount, given its other pending payments.",
  invalid_signature: "The token refuses the signature.",
  blocked: "The token blocks the payer or the payee.",
  paused: "The token is paused.",
  unknown: "The transfer fails on chain within its gas limit.",
};

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
  const ageMs = Math.max(Date.now() - record.created_at.getTime(), 0) + 600_000;
  const span = BigInt(Math.ceil(ageMs / Math.min(ctx.network.blockTimeMs, 250)));
  const use = await ctx.reads.findAuthorizationUse(ctx.rpc, key, {
    from: atBlock > span ? atBlock - span : 0n,
    to: atBlock,
  });
  if (!use) {
    if (record.agent_id !== null) return undefined;
    return {
      ...key,
      status: "failed",
      reason: REASON_CODES.used,
      message: "The authorization was used before it was presented here.",
    };
  }
  const proof = { hash: use.txHash, block: use.blockNumber.toString() };
  if (use.event === "canceled")
    return {
      ...key,
      ...proof,
      status: "failed",
      reason: record.agent_id === null ? REASON_CODES.used : REASON_CANCELED,
      message: "The authorization was canceled on chain.",
    };
  const receipt = await ctx.reads.readReceipt(ctx.rpc, use.txHash);
  if (!receipt) return undefined;
  const fate = fateIn(receipt.logs, {
    ...key,
    to: record.to_address,
    value: record.value,
  });
  if (fate === "used_otherwise")
    return {
      ...key,
      ...proof,
      status: "failed",
      reason: REASON_CODES.used,
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
        ...proof,
        status: "failed",
        reason: REASON_CODES.used,
        message: "The authorization was used before it was presented here.",
      };
  }
  return { ...key, ...proof, status: "settled", byOther };
}

/**
 * Simulates a batch before it is signed (eth_call): finds payments that would fail, payments that must
 * be sent alone, and a token that does not work.
 */
import type { Address } from "viem";
import * as reads from "../../infra/chain/contracts.ts";
import { classifyChainError, revertReason } from "../../infra/chain/errors.ts";
import { schemeOf } from "../../schemes/index.ts";
import {
  gasLimitOf,
  isThirdParty,
  hasTooManyFaults,
  MAX_GIVEN_UP,
  pendingDebits,
} from "./batch.ts";
import type { BatchItem, Fees } from "./batch.ts";
import type { EngineContext } from "./context.ts";

/** `text` is the revert reason, if there is one. */
export interface RefusedItem {
  item: BatchItem;
  text: string | undefined;
  /** Mined without effect or rejected by nodes so often that it is no longer simulated. */
  hasTooManyFaults: boolean;
}

export interface PreflightResult {
  good: BatchItem[];
  /** Would fail; the outcome is to be proven. */
  refused: RefusedItem[];
  /** To be retried, each in its own transaction. */
  alone: BatchItem[];
  /** The token accepts every call and does nothing: nothing may be sent now. */
  isTokenDead: boolean;
  /** Our batcher, if the same simulation showed that it works. */
  batcher?: Address | undefined;
}

const NOTHING: PreflightResult = { good: [], refused: [], alone: [], isTokenDead: false };

export interface PreflightTerms {
  from: string;
  fees: Fees;
  /** Items in flight, not yet in a block. */
  ahead: readonly BatchItem[];
  /** The items are a part of a batch, and the good ones are sent together with others. */
  isPart?: true;
}

/**
 * Makes one `eth_call` that shows which payments would fail, and one that shows which payers have contract
 * code. Any block may change a payer's code or balance, so both are made for each batch and nothing is remembered.
 */
export async function preflight(
  ctx: EngineContext,
  items: BatchItem[],
  terms: PreflightTerms,
): Promise<PreflightResult> {
  const [only] = items;
  // A contract can pass every simulation and still do nothing in the transaction, at our gas.
  if (items.length === 1 && only && (hasTooManyFaults(only) || isGivenUp(only)))
    return { ...NOTHING, refused: [{ item: only, text: undefined, hasTooManyFaults: true }] };
  const doubtful = items.filter((item) => !item.solo && isThirdParty(item));
  const readSizes = () =>
    reads.readCodeSizes(
      ctx.rpc,
      doubtful.map(({ from }) => from),
    );
  const trial = simulate(ctx, items, terms).then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  // Alone in its transaction and within the gas of a plain payment, a payer's code can do no harm.
  if (items.length === 1 && terms.isPart !== true) {
    const alone = await trial;
    if ("value" in alone && alone.value.good.length === 1)
      return { ...NOTHING, good: alone.value.good, isTokenDead: alone.value.isTokenDead };
  }
  const [sizes, simulated] = await Promise.all([readSizes(), trial]);
  const coded = doubtful.filter(({ from }) => (sizes.get(from.toLowerCase()) ?? 0n) > 0n);
  if ("error" in simulated) {
    if (coded.length > 0) {
      const rest = await preflightRest(ctx, items, coded, terms);
      return { ...rest, alone: [...rest.alone, ...coded] };
    }
    return halve(ctx, items, terms, simulated.error);
  }
  const { value } = simulated;
  if (value.isTokenDead) return { ...NOTHING, alone: coded, isTokenDead: true };
  return {
    good: value.good.filter((item) => !coded.includes(item)),
    refused: value.refused.filter(({ item }) => !coded.includes(item)),
    alone: [...coded, ...value.unexplained.filter((item) => !coded.includes(item))],
    isTokenDead: false,
    batcher: value.batcher,
  };
}

const isGivenUp = (item: BatchItem): boolean =>
  isThirdParty(item) && item.record.givenUp >= MAX_GIVEN_UP;

function preflightRest(
  ctx: EngineContext,
  items: readonly BatchItem[],
  without: readonly BatchItem[],
  terms: PreflightTerms,
): Promise<PreflightResult> | PreflightResult {
  const rest = items.filter((item) => !without.includes(item));
  return rest.length === 0 ? NOTHING : preflight(ctx, rest, terms);
}

/** A failure of the relayer or the endpoint: it proves nothing about the payments. */
export function isInfrastructureError(error: unknown): boolean {
  const { kind } = classifyChainError(error);
  return kind === "unreachable" || kind === "insufficient_gas_money" || kind === "fee_too_low";
}

/** One item may burn the gas of the whole simulation: splits the batch in halves until it is found. */
async function halve(
  ctx: EngineContext,
  items: BatchItem[],
  terms: PreflightTerms,
  error: unknown,
): Promise<PreflightResult> {
  if (isInfrastructureError(error)) throw error;
  if (items.length === 1)
    return {
      ...NOTHING,
      refused: items.map((item) => ({ item, text: undefined, hasTooManyFaults: false })),
    };
  const half = Math.ceil(items.length / 2);
  const [one, other] = await Promise.all([
    preflight(ctx, items.slice(0, half), { ...terms, isPart: true }),
    preflight(ctx, items.slice(half), {
      ...terms,
      isPart: true,
      ahead: [...terms.ahead, ...items.slice(0, half)],
    }),
  ]);
  return {
    good: [...one.good, ...other.good],
    refused: [...one.refused, ...other.refused],
    alone: [...one.alone, ...other.alone],
    isTokenDead: one.isTokenDead || other.isTokenDead,
    batcher: one.batcher === other.batcher ? one.batcher : undefined,
  };
}

/** Simulates one item's own call as it will be sent, without other pending debits of the payer. */
async function simulateAlone(ctx: EngineContext, item: BatchItem, terms: PreflightTerms) {
  const { from, fees } = terms;
  const { success, data } = await reads.callAs(ctx.rpc, from, item.call, {
    gas: gasLimitOf([item]),
    fees,
  });
  const refused = success ? [] : [{ item, text: revertReason(data), hasTooManyFaults: false }];
  return {
    good: success ? [item] : [],
    refused,
    unexplained: [],
    isTokenDead: false,
    batcher: undefined,
  };
}

async function simulate(ctx: EngineContext, items: BatchItem[], terms: PreflightTerms) {
  const isBatch = items.length > 1;
  const [first] = items;
  if (!isBatch && first?.sender !== undefined) return simulateAlone(ctx, first, terms);
  const debits = pendingDebits(items, terms.ahead);
  const all = [...debits, ...items];
  // A settle of a channel's receiver does nothing on a node that does not know its claims: no reason to stop payments.
  const probed = items.findIndex(
    (item) => item.action === "transfer" && schemeOf(item).isOrder !== true,
  );
  const probe = items[probed];
  // A single item is not sent through the batcher.
  const batcherProbe = isBatch ? ctx.batcher.probe : undefined;
  const answers = await reads.simulate(ctx.rpc, {
    from: terms.from,
    calls: [
      // The probe comes first: a call that burns the simulation's gas leaves none for later calls.
      ...(batcherProbe ? [batcherProbe] : []),
      ...all.map(({ call }) => call),
      ...(probe ? [schemeOf(probe).stateCall(probe)] : []),
    ],
    gas: gasLimitOf(all),
    fees: terms.fees,
  });
  const isBatcherThere = batcherProbe !== undefined && ctx.batcher.checkProbe(answers[0]);
  const results = batcherProbe ? answers.slice(1) : answers;
  const own = results.slice(debits.length, all.length);
  const after = results[all.length];
  // After a successful transfer its authorization is used. If it is not, the token does not work.
  const isTokenDead =
    probe !== undefined &&
    own[probed]?.success === true &&
    (!after || schemeOf(probe).isEnded(probe, after) !== true);
  const good: BatchItem[] = [];
  const refused: PreflightResult["refused"] = [];
  const unexplained: BatchItem[] = [];
  for (const [index, item] of items.entries()) {
    const result = own[index];
    const text = revertReason(result?.data ?? "0x");
    if (result?.success === true) good.push(item);
    // Without a revert reason another item may be the cause: this one is retried alone.
    else if (text === undefined && isBatch) unexplained.push(item);
    else refused.push({ item, text, hasTooManyFaults: false });
  }
  const batcher = isBatcherThere ? batcherProbe.target : undefined;
  return { good, refused, unexplained, isTokenDead, batcher };
}

/** One nonce of a lane, from signed to final, as this process follows it. */
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import type { BatchItem } from "./batch.ts";
import type { StoredTransaction } from "./lane-store.ts";
import type { Refusals } from "./mempool.ts";
import type { NonceSearch } from "./receipts.ts";
import type { TransactionTrace } from "./transaction-trace.ts";

export interface Slot extends StoredTransaction {
  lastSentMs: number;
  /** The newest block there may have been when the newest attempt was first sent: those after it passed it over. */
  sentAtBlock: bigint;
  underpriced: boolean;
  refusals: Refusals | undefined;
  /** Since when its nonce counts as used although no attempt has a receipt. */
  missingSinceMs: number | undefined;
  /** How far the blocks have been searched for who took its nonce. */
  search: NonceSearch | undefined;
  finishing: boolean;
  mined: boolean;
  /** While the endpoint it was sent to is to answer with its receipt. */
  waiting: AbortController | undefined;
  /** What that endpoint answered: it counts with the block it names. */
  shown: RpcReceipt | undefined;
  /** As claimed; missing for transactions taken over from an earlier holder of the lease. */
  batch: BatchItem[] | undefined;
  /** Set when the request was traced. */
  trace: TransactionTrace | undefined;
}

export function slotOf(tx: StoredTransaction, sentAtBlock: bigint): Slot {
  return {
    ...tx,
    lastSentMs: 0,
    sentAtBlock,
    underpriced: false,
    refusals: undefined,
    missingSinceMs: undefined,
    search: undefined,
    finishing: false,
    mined: tx.included !== undefined,
    waiting: undefined,
    shown: undefined,
    batch: undefined,
    trace: undefined,
  };
}

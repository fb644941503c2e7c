/** One nonce of a lane, from signed to final, as this process follows it. */
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import type { BatchItem } from "./batch.ts";
import type { StoredTransaction } from "./lane-store.ts";
import type { Refusals } from "./mempool.ts";
import type { NonceSearch } from "./receipts.ts";
import type { TransactionTrace } from "./transaction-trace.ts";

export interface Slot extends StoredTransaction {
  lastSentMs: number;
  /**
   * The newest block number that was possible when the newest attempt was first sent: later blocks had the
   * chance to include it.
   */
  sentAtBlock: bigint;
  underpriced: boolean;
  refusals: Refusals | undefined;
  /** Since when the chain counts the nonce as used although no attempt has a receipt. */
  missingSinceMs: number | undefined;
  /** How far the blocks have been searched for the transaction that took the nonce. */
  search: NonceSearch | undefined;
  finishing: boolean;
  mined: boolean;
  /** Set while a send waits for the endpoint to return the receipt. */
  waiting: AbortController | undefined;
  /** The receipt that this endpoint returned. It counts once its block is known. */
  shown: RpcReceipt | undefined;
  /** The claimed items. Undefined for transactions taken over from an earlier lease holder. */
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

/** Types of the settlement engine: it takes a signed authorization and returns a proven outcome. */
import type { Hex } from "viem";
import type { SettlementKey, SignedAuthorization } from "../../core/authorization.ts";
import type { FeeAgreement } from "../../core/fees.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { GasAccount } from "./gas-store.ts";

/**
 * `allowance`: an approval, not a payment. It sets what a contract may take from an agent's wallet, so that
 * payments through the contract work.
 * `refund`: a merchant's wallet returns a payment that was settled to it.
 */
export type SettlementKind =
  | "spend"
  | "x402"
  | "withdrawal"
  | "facilitated"
  | "allowance"
  | "refund";
export type SettlementStatus = "queued" | "submitted" | "settled" | "failed" | "expired";

export interface SettlementRequest {
  /** For an agent's own payment, the payment's id. */
  id: string;
  kind: SettlementKind;
  /** Null only for facilitated payments and refunds. */
  agentId: string | null;
  authorization: SignedAuthorization;
  /** False: only watched, because another party is expected to relay it. */
  relay: boolean;
  callerKeyHash?: Uint8Array;
  bodyHash?: Uint8Array;
  /** What the payee owes for it, or whose fees it pays. */
  fee?: FeeAgreement | undefined;
  /** What a facilitated payment buys, as the payment names it. */
  resource?: { url: string; method: string | null; description: string | null };
  /**
   * The newest block at acceptance, filled in by the engine. A use at or before it was not caused by this
   * request.
   */
  acceptedBlock?: bigint;
  /** The merchant's credential. Undefined for anonymous callers. */
  merchant?: string;
  /**
   * The accounts that pay for its gas, and the reserved amount. The engine fills it in for facilitated
   * payments, refunds and allowances.
   */
  gas?: { accounts: readonly string[]; hold: bigint };
  /** The trace of the request, where tracing is configured. */
  traceparent?: string | null;
}

/** For each authorization, at most one request gets `created`, and at most one gets `attached`. */
export interface Accepted {
  created: boolean;
  /** The row was only watched; this request has it relayed. */
  attached: boolean;
  settlement: SettlementRow;
}

/** The database response was lost, and no row was found afterwards: the row may still appear. */
export class AcceptanceUnknown extends Error {
  override name = "AcceptanceUnknown";
  readonly id: string;

  constructor(id: string, cause: unknown) {
    super(`it is not known whether ${id} was accepted`, { cause });
    this.id = id;
  }
}

/** A settlement as other modules see it. */
export interface SettlementRow {
  id: string;
  kind: SettlementKind;
  agentId: string | null;
  authorization: SignedAuthorization;
  relay: boolean;
  status: SettlementStatus;
  errorReason: string | null;
  errorMessage: string | null;
  txHash: Hex | null;
  blockNumber: bigint | null;
  /** A transaction that is not ours made the transfer. */
  byOther: boolean;
  callerKeyHash: Uint8Array | null;
  bodyHash: Uint8Array | null;
  successReturnedAt: Date | null;
  createdAt: Date;
  settledAt: Date | null;
  /** Deep enough in the chain that no reorganisation can undo it. */
  isFinal: boolean;
  /** A third-party payment that was rejected after acceptance and has not been retried yet. */
  mayTryAgain: boolean;
  traceparent: string | null;
}

/** The whole row, decoded once when it is read, with what lanes and proofs need. */
export interface SettlementRecord extends SettlementRow {
  /** Queue class: 0 withdrawals, 1 agents' payments, 2 third parties' payments. */
  class: number;
  /** Its start time in the queue. */
  turn: Date;
  /** It must be sent alone. */
  solo: boolean;
  /** How many transactions carried it. */
  attempts: number;
  /** How often it caused its own failure in a mined transaction. */
  faults: number;
  /** How often nodes rejected its transaction for good. */
  givenUp: number;
  /** Set when the authorization is to be canceled. */
  cancelSignature: Hex | null;
  acceptedBlock: bigint | null;
  blockHash: Hex | null;
  /** The range of blocks in which its use has been searched. */
  searchedUp: bigint | null;
  searchedDown: bigint | null;
}

/**
 * Where the fact was read that ended a settlement. Stored with every end; block numbers are decimal strings.
 */
export type EndProof =
  /** The logs of the transaction show it. */
  | { kind: "receipt"; tx: string; block: string; blockHash: string }
  /** The contract state at this block shows it. */
  | { kind: "state"; block: string; blockHash: string; timestamp: string }
  /** The contract rejected the call as of this block, and we do not send it again. */
  | { kind: "refusal"; block: string; blockHash: string };

/**
 * A proven outcome of one authorization, as the SQL function takes it. If the proof contradicts an end that is
 * already stored, the row is corrected.
 * "open": a reorganisation removed the transaction in `proof`, and with it the end. "held": proven, but
 * reported only when it is final.
 */
export interface ProvenOutcome {
  from: string;
  asset: string;
  nonce: string;
  status: "settled" | "failed" | "expired" | "open" | "held";
  proof?: EndProof;
  /** No reorganisation can undo it: it is `confirmations` deep, or does not depend on a block. */
  isFinal: boolean;
  byOther?: boolean;
  /** The charged amount as a decimal string, when it may be less than the signed maximum. */
  amount?: string;
  reason?: string;
  message?: string;
}

/** What writing outcomes changed. */
export interface FinalizeResult {
  /** The number of settlements that were open and have ended. */
  finished: number;
  /** Ends that the new proof contradicted. */
  corrected: readonly { id: string; kind: string }[];
}
export const NOTHING_FINALIZED: FinalizeResult = { finished: 0, corrected: [] };

/** Pending means unknown: it may still happen, and only the chain decides. */
export type SettlementOutcome =
  | {
      status: "settled";
      id: string;
      txHash: Hex;
      blockNumber: bigint;
      settledAt: Date;
      byOther: boolean;
      /** The transferred amount; with a signed maximum, the amount that was charged. */
      amountAtomic: bigint;
    }
  | {
      status: "failed" | "expired";
      id: string;
      reason: string;
      message: string;
      txHash?: Hex;
    }
  | { status: "pending"; id: string; txHash?: Hex };

/** The result of canceling an authorization before a seller uses it. */
export type CancelOutcome =
  | { status: "canceled"; txHash?: Hex }
  | { status: "settled"; txHash: Hex; blockNumber: bigint; settledAt: Date; amountAtomic: bigint }
  | { status: "expired" }
  /**
   * Its payee caused too many cancellations: no more are sent. The authorization can be used until this time.
   */
  | { status: "lapsing"; until: Date }
  | { status: "pending" };

/** Reason of a settlement that can never happen because its authorization was canceled on chain. */
export const REASON_CANCELED = "authorization_canceled";

export interface WaitOptions {
  /**
   * Reads the chain immediately and again with each block, instead of waiting for the next round of the watch.
   */
  look?: boolean;
  /** A transaction hash from the caller. Only a hint: its receipt must prove the payment. */
  txHash?: Hex;
}

export interface Availability {
  kind?: SettlementKind;
  lane?: string | undefined;
}

/** The engine's interface to the rest of the server (decorated as `app.settlement`). */
export interface Settlement {
  /**
   * Throws `chain_unavailable`, `keys_unavailable` or `relayer_unfunded`. Call it before anything is reserved
   * or signed.
   * `lane` is the only account that may send the payment, if it names one.
   */
  assertAvailable(chainId: number, options?: Availability): Promise<void>;
  /** The gas cost to reserve for one payment of an agent's wallet, in units of core/gas.ts. */
  gasHold(chainId: number): Promise<bigint>;
  /** The gas budgets of these accounts on a chain, and what is left of them. */
  gasAccounts(chainId: number, accounts: readonly string[]): Promise<GasAccount[]>;
  /**
   * Runs inside the caller's transaction. A known authorization is returned as it is; one that was only watched
   * is attached when the new request has it relayed.
   */
  accept(sql: Sql, request: SettlementRequest): Promise<Accepted>;
  /** The same for many at once, in as few statements as possible; results are in the order of the requests. */
  acceptAll(sql: Sql, requests: readonly SettlementRequest[]): Promise<Accepted[]>;
  /** Resolves as soon as the outcome is final, whichever replica wrote it, or as pending after the timeout. */
  wait(id: string, timeoutMs: number, options?: WaitOptions): Promise<SettlementOutcome>;
  find(id: string): Promise<SettlementRow | undefined>;
  findByAuthorization(key: SettlementKey): Promise<SettlementRow | undefined>;
  /**
   * Writes outcomes that were proven elsewhere. Stored ends that they contradict are corrected, counted in
   * `purser_corrections_total` and logged as errors.
   */
  record(chainId: number, outcomes: readonly ProvenOutcome[]): Promise<FinalizeResult>;
  /**
   * Requeues a refused facilitated settlement, once. Undefined when that is not allowed or was done before.
   */
  tryAgain(key: SettlementKey): Promise<SettlementRow | undefined>;
  /** Relays `cancelAuthorization` for an agent's own authorization, and waits for the result. */
  requestCancel(request: {
    key: SettlementKey;
    cancelSignature: Hex;
    timeoutMs?: number;
  }): Promise<CancelOutcome>;
}

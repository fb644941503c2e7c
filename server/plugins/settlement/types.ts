/** The types of the settlement engine: one signed authorization in, one proven outcome out. */
import type { Hex } from "viem";
import type { CallResult, ContractCall } from "../../core/abi.ts";
import type { SettlementKey, SignedAuthorization } from "../../core/authorization.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { GasAccount } from "./gas-store.ts";
import type { ProvenOutcome, FinalizeResult } from "./store.ts";

/**
 * `allowance` is no payment of an agent: what a contract may take of its wallet, so that payments through it can be.
 * `refund`: a merchant's wallet gives back what was settled to it.
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
  /** For an agent's own payment: the payment's id. */
  id: string;
  kind: SettlementKind;
  /** Null for facilitated work and refunds, and only for them. */
  agentId: string | null;
  authorization: SignedAuthorization;
  /** False: only watched, because somebody else is expected to relay it. */
  relay: boolean;
  callerKeyHash?: Uint8Array;
  bodyHash?: Uint8Array;
  /** The head when it was accepted; the engine fills it in. A use at or before it is somebody else's. */
  acceptedBlock?: bigint;
  /** The newest block when its successful rehearsal began. Undefined where it was not rehearsed. */
  rehearsedBlock?: bigint;
  /** The credential of the merchant. Third parties have none. */
  merchant?: string;
  /** Who pays for its gas, and what is set aside: the engine fills it in for facilitated work and refunds. */
  gas?: { accounts: readonly string[]; hold: bigint };
  /** The trace of the request, where traces are configured. */
  traceparent?: string;
}

/** At most one request for an authorization has it created, and at most one has it attached. */
export interface Accepted {
  created: boolean;
  /** The row was only watched, and this request had it relayed. */
  attached: boolean;
  settlement: SettlementRow;
}

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
  /** The transfer was made by a transaction that is not ours. */
  byOther: boolean;
  callerKeyHash: Uint8Array | null;
  bodyHash: Uint8Array | null;
  successReturnedAt: Date | null;
  createdAt: Date;
  settledAt: Date | null;
  /** Its end is deep enough in the chain that no reorganisation takes it back. */
  isFinal: boolean;
  /** A third-party payment that was refused in flight, and was not tried again yet. */
  mayTryAgain: boolean;
  traceparent: string | null;
}

/** Pending means unknown: it may still happen, and only the chain decides. */
export type SettlementOutcome =
  | {
      status: "settled";
      id: string;
      txHash: Hex;
      blockNumber: bigint;
      settledAt: Date;
      byOther: boolean;
      /** What moved: of a maximum, what was charged. */
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

/** What became of the wish to make an authorization worthless before a seller uses it. */
export type CancelOutcome =
  | { status: "canceled"; txHash?: Hex }
  | { status: "settled"; txHash: Hex; blockNumber: bigint; settledAt: Date; amountAtomic: bigint }
  | { status: "expired" }
  /** Its payee forced several: nothing is sent for it any more, and it can be used until then. */
  | { status: "lapsing"; until: Date }
  | { status: "pending" };

/** Reason of a settlement that can never happen because its authorization was canceled on chain. */
export const REASON_CANCELED = "authorization_canceled";

export interface WaitOptions {
  /** Reads the chain at once, and again with each block, instead of waiting for the watch to come by. */
  look?: boolean;
  /** A transaction that a caller names. Only a hint: its receipt has to prove it. */
  txHash?: Hex;
}

export interface Availability {
  kind?: SettlementKind;
  lane?: string | undefined;
}

/** What the engine needs to know of the newest state, for callers that make a Multicall3 call anyway. */
export interface ExtraCalls {
  /** To stand before all that changes anything. */
  calls: readonly ContractCall[];
  hear(results: readonly CallResult[]): void;
}

/** The engine as every other part sees it (decorated as `app.settlement`). */
export interface Settlement {
  /**
   * Throws `chain_unavailable`, `keys_unavailable` or `relayer_unfunded`. Ask before anything is reserved or signed. `lane` is the one
   * account that may send it, where the payment names one.
   */
  assertAvailable(chainId: number, options?: Availability): Promise<void>;
  /** The reads that `assertAvailable` needs, to be added to another call. Undefined when they are fresh. */
  extraCalls(chainId: number): ExtraCalls | undefined;
  /**
   * A payment of this chain is being checked and may be accepted soon: a lane keeps a batch that is not
   * full open for it, for a part of a block at most. Call the answer when it was accepted or refused.
   */
  expect(chainId: number): () => void;
  /** The newest block, where it is known to be that. */
  newestBlock(chainId: number): bigint | undefined;
  /** What to set aside for the gas of one payment of an agent's wallet, in units of core/gas.ts. */
  gasHold(chainId: number): Promise<bigint>;
  /** What these accounts may use on a chain, and what is left of it. */
  gasAccounts(chainId: number, accounts: readonly string[]): Promise<GasAccount[]>;
  /**
   * Inside the caller's transaction. An authorization that is already known is returned as it is; one that
   * was only watched is attached when the new request has it relayed.
   */
  accept(sql: Sql, request: SettlementRequest): Promise<Accepted>;
  /** The same for many at once, by as few statements as possible; answers in their order. */
  acceptAll(sql: Sql, requests: readonly SettlementRequest[]): Promise<Accepted[]>;
  /** Resolves as soon as the outcome is final, whichever replica made it so, or as pending after the time. */
  wait(id: string, timeoutMs: number, options?: WaitOptions): Promise<SettlementOutcome>;
  find(id: string): Promise<SettlementRow | undefined>;
  findByAuthorization(key: SettlementKey): Promise<SettlementRow | undefined>;
  /**
   * Writes outcomes that were proven elsewhere. Ends that they contradict are corrected, counted in
   * `purser_corrections_total` and logged as errors.
   */
  record(chainId: number, outcomes: readonly ProvenOutcome[]): Promise<FinalizeResult>;
  /** Puts a refused facilitated settlement back into the queue, once; undefined when it may not be, or was before. */
  tryAgain(key: SettlementKey): Promise<SettlementRow | undefined>;
  /** Relays `cancelAuthorization` for an agent's own authorization, and waits for its fate. */
  requestCancel(request: {
    key: SettlementKey;
    cancelSignature: Hex;
    timeoutMs?: number;
  }): Promise<CancelOutcome>;
}

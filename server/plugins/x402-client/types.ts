/** The words of the x402 client: who asks, what is asked, and what it needs from the house. */
import type { Address, Hex } from "viem";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { ListingBook } from "../listings/book.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { Idempotency } from "../payments/idempotency.ts";
import type { Payments } from "../payments/pay.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import type { Payer } from "../payments/types.ts";
import type { SettlementKey } from "../../core/authorization.ts";
import type { Settlement } from "../settlement/types.ts";
import type { Offer, OfferedTerms } from "./offer.ts";

export interface FetchInput {
  url?: string;
  listingId?: string;
  method?: string;
  headers?: Record<string, string>;
  body?: unknown;
  maxAmount?: string;
  dryRun?: boolean;
  timeoutMs?: number;
}

export interface FetchCaller extends Payer {
  /** The agent's own network, preferred among equal prices. */
  network: string;
  requestId: string | null;
  idempotency?: IdempotencyRef;
}

/** The request to the target, the same with and without the proof. */
export interface TargetRequest {
  url: URL;
  method: string;
  headers: Record<string, string>;
  body: string | undefined;
  timeoutMs: number;
}

/** What a payment is made for; kept with it, so that another process can present it again. */
export interface PaymentTerms {
  x402Version: Offer["x402Version"];
  accepted: OfferedTerms["raw"];
  resource?: Record<string, unknown>;
}

export interface LedgerRow {
  status: "blocked" | "reserved" | "submitted" | "settled" | "voided" | "unknown";
  network: string;
  payTo: Address;
  amountAtomic: bigint;
  terms: PaymentTerms;
  delivered: boolean | null;
  /** On the database's clock. */
  ageSeconds: number;
}

export interface Ledger {
  recordDelivery(key: PaymentKey, seen: Delivery): Promise<void>;
  /** Signed, and the chain has not said yet what became of it. */
  markUnknown(key: PaymentKey): Promise<void>;
  find(key: PaymentKey): Promise<LedgerRow | undefined>;
  remaining(agentId: string): Promise<bigint>;
}

export interface PaymentKey {
  agentId: string;
  paymentId: string;
}

/** Payment and delivery are two facts: one is the chain's, the other is what the target did. */
export interface Delivery {
  /** Null when no HTTP answer came. */
  upstreamStatus: number | null;
  delivered: boolean;
}

/** Points a crash test stops at. */
export type FaultPoint = "submitted" | "answered" | "confirmed";

export interface ClientParts {
  ask(request: OutboundRequest): Promise<OutboundResponse>;
  networks: readonly NetworkFacts[];
  payments: Pick<Payments, "authorize" | "evaluate" | "readBalance" | "refuse" | "voidReserved">;
  idempotency: Idempotency;
  settlement: Pick<Settlement, "find" | "requestCancel" | "wait">;
  signCancel(agentId: string, key: Omit<SettlementKey, "from">): Promise<Hex>;
  ledger: Ledger;
  listings: Pick<ListingBook, "forFetch" | "flag" | "countUse">;
  /** How long an outcome on chain is waited for. */
  settleWaitMs: number;
  /** Does nothing in service. */
  fault(point: FaultPoint): Promise<void>;
  log: { warn(fields: object, message: string): void };
}

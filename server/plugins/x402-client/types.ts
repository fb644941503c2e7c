/** The words of the x402 client: who asks, what is asked, and what it needs from the house. */
import type { Hex } from "viem";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { ListingBook } from "../listings/book.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import type { AgentReserve, Payer } from "../payments/agent-reserve.ts";
import type { PayFlow, PaymentKey } from "../payments/pay.ts";
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

/** Payment and delivery are two facts: one is the chain's, the other is what the target did. */
export interface DeliveryRecord {
  /** Null when no HTTP answer came. */
  upstreamStatus: number | null;
  delivered: boolean;
}

/** The steps of a fetch at which a crash test kills the process. */
export type FetchFault = "submitted" | "answered" | "confirmed";

export interface ClientDeps {
  ask(request: OutboundRequest): Promise<OutboundResponse>;
  networks: readonly NetworkFacts[];
  flow: Pick<PayFlow, "run">;
  agentReserve: AgentReserve;
  settlement: Pick<Settlement, "find" | "requestCancel" | "wait">;
  signCancel(agentId: string, key: Omit<SettlementKey, "from">): Promise<Hex>;
  recordDelivery(key: PaymentKey, seen: DeliveryRecord): Promise<void>;
  remainingOf(agentId: string): Promise<bigint>;
  networkOf(chainId: number): string;
  listings: Pick<ListingBook, "forFetch" | "flag" | "countUse">;
  /** How long an outcome on chain is waited for. */
  settleWaitMs: number;
  /** Does nothing in service. */
  fault(point: FetchFault): Promise<void>;
  log: { warn(fields: object, message: string): void };
}

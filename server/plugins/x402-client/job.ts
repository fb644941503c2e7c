/** What the steps of one fetch share: the request, its caller, and the services that it uses. */
import type { Address } from "viem";
import type { SignedAuthorization } from "../../core/authorization.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { Sql } from "../../infra/db/pool.ts";
import type { Db } from "../../infra/db/prisma.ts";
import type { ThroughChannel, VoucherEnd, WalletChannels } from "../channels/wallet.ts";
import type { Custody } from "../custody/custody.ts";
import type { AgentLock } from "../guardrails/agent-lock.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";
import type { ListingPins, ListingRegistry } from "../listings/index.ts";
import type { KeptEvidence } from "../payments/evidence.ts";
import type { Call, Calls, PaymentKey, PaymentResult } from "../payments/idempotency.ts";
import type { AgentReserve, Payer } from "../payments/reserve.ts";
import type { PaymentSteps } from "../payments/steps.ts";
import type { Settlement } from "../settlement/types.ts";
import type { Lease } from "./budget.ts";
import type { CacheLookup } from "./cache.ts";
import type { UpstreamContent } from "./content.ts";
import type { LedgerEntry } from "./ledger.ts";
import type { FetchInput, Prepared, SendRequest } from "./request.ts";
import type { Offer, OfferedTerms, RouteBinding } from "./terms.ts";
import type { ToolTarget } from "./tool-call.ts";

export interface FetchCaller extends Payer {
  ownerId: string;
  /** The agent's own network, preferred among equal prices. */
  network: string;
  /** "sites": requests may go only to sites on the agent's allowlist. */
  fetch: "any" | "sites";
  /** Its owner allows money in payment channels. */
  usesChannels: boolean;
  /** Its owner may deny the target's site. */
  hasDenied: boolean;
  requestId: string | null;
  idempotency?: IdempotencyRef;
  /** Its share of memory, held until its response is sent. */
  lease: Lease;
}

/** The points between the steps at which a crash test stops the process. */
export type FetchFault = "submitted" | "answered" | "confirmed" | "kept";

/** The services that a fetch uses. */
export interface FetchDeps {
  /** Sends a request to a third party, guarded against private addresses. */
  send: SendRequest;
  networks: readonly NetworkFacts[];
  calls: Calls;
  steps: PaymentSteps;
  agentReserve: AgentReserve;
  settlement: Pick<Settlement, "find" | "requestCancel" | "wait">;
  custody: Pick<Custody, "signCancel" | "signIn">;
  channels: WalletChannels;
  /** Requests that pay one payee through a channel. */
  channelLock: AgentLock;
  pool: Sql;
  db: Db;
  listings: Pick<ListingRegistry, "forFetch" | "flag" | "countUse">;
  remainingOf(agentId: string): Promise<bigint>;
  networkOf(chainId: number): string;
  /** How many bytes of a response are returned. */
  maxBytes: number;
  /** How long a fetch waits for an outcome on chain. */
  settleWaitMs: number;
  sleep(ms: number): Promise<void>;
  /** Does nothing in production. */
  fault(point: FetchFault): Promise<void>;
  log: { warn(fields: object, message: string): void };
}

export interface Job extends Prepared {
  deps: FetchDeps;
  input: FetchInput;
  caller: FetchCaller;
  listing: ListingPins | undefined;
  entry: LedgerEntry;
  /** The tool of an MCP server that is called, if it is one. */
  tool: ToolTarget | undefined;
  /** Set when a cached response may be returned, or this one may be cached. */
  cacheLookup: CacheLookup | undefined;
  /** A seller's total of a channel was adopted: that happens once in a fetch. */
  hasCorrected?: true;
}

/**
 * The terms that a payment was made for, stored with it, so that another process can present the proof again.
 */
export interface PaymentTerms {
  x402Version: Offer["x402Version"];
  /** Undefined: x402. */
  protocol?: "mpp";
  accepted: OfferedTerms["raw"];
  resource?: Record<string, unknown>;
  binding?: RouteBinding;
  /** The seller's signed offer for these terms, if any. */
  offered?: unknown;
}

/** A payment that is signed and that the engine watches: what its proof, its check and its answer need. */
export type SignedPayment = SignedCommon &
  ({ authorization: SignedAuthorization; through?: undefined } | { through: ThroughChannel });

/** One that moves money by an authorization of the token. */
export type AuthorizedPayment = Extract<SignedPayment, { authorization: SignedAuthorization }>;

export interface SignedCommon {
  key: PaymentKey;
  call: Call;
  offer: Pick<Offer, "x402Version" | "resource" | "extensions">;
  accepted: OfferedTerms;
  /** The seller's signed offer for these terms, if any. */
  offered?: unknown;
  /** When the request that pays began. */
  fromMs: number;
  facts: { network: string; payTo: Address; amountAtomic: bigint; paymentId: string };
  remainingAtomic: bigint;
  /** The site grants access by signature after a payment (`sign-in-with-x`), as far as known. */
  signsIn: boolean;
}

/**
 * Payment and delivery are separate facts: the chain proves the payment, and this records what the target did.
 */
interface DeliveryRecord {
  /** Null if no HTTP response came. */
  upstreamStatus: number | null;
  delivered: boolean;
}

/** The end of a fetch that signed a payment: what is answered, and what is recorded after it. */
export interface Confirmed {
  result: PaymentResult;
  delivery: DeliveryRecord;
  /** Of a payment through a channel. */
  voucher?: VoucherEnd;
  /** "open": the seller may still collect it. */
  payment: "settled" | "open" | "none";
  /** The delivered content. */
  seen?: UpstreamContent;
  /** What the seller signed. */
  evidence?: KeptEvidence | undefined;
}

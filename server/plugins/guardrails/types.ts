/** The types of the guardrails: what is requested, what is known, what is decided. */
import { createHash } from "node:crypto";
import type { Address } from "viem";
import type { Nonce } from "../../core/authorization.ts";
import { ExactJson } from "../../core/exact-json.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";
import type { DenialCode, RuleName, Snapshot } from "./rules/index.ts";
import type { TargetCode } from "./rules/target.ts";
import type { PolicyNumbers } from "./rules/rule.ts";

export type { DenialCode, RuleName, Snapshot } from "./rules/index.ts";

export interface RuleVerdict {
  rule: RuleName;
  /** Null: a rule before it refused already. */
  passed: boolean | null;
  detail: string;
  /** Of a limit of a time, where it did not pass: when it alone will let this amount pass; null: never. */
  availableAt?: string | null;
  /** It refused, and the owner may let this one payment pass (`requestApproval`). */
  liftable?: true;
}

/** When a limit of a time has room again. */
export interface Release {
  rule: RuleName;
  nextReleaseAt: Date | null;
  /** When the same amount will fit this limit; null: never. */
  availableAt: Date | null;
}

export type Evaluation =
  | { allowed: true; trace: RuleVerdict[] }
  | {
      allowed: false;
      code: DenialCode;
      rule: RuleName;
      /** The sentence of the rule that refused. */
      detail: string;
      trace: RuleVerdict[];
    };

/** The members `policy` of a denial, as on the wire. */
export interface Policy extends PolicyNumbers {
  rule: RuleName;
  requested: string;
}

/** What was wrong with the target before any rule was checked. */
export interface TargetRefusal {
  code: TargetCode;
  detail?: string;
}

export interface ReserveRequest {
  agentId: string;
  /** Checked again under the lock: a key revoked meanwhile pays nothing. Null for the owner's own try. */
  apiKeyId: string | null;
  kind: "spend" | "x402";
  chainId: number;
  asset: Address;
  /** Null only together with a refusal that came before a payee was known. */
  to: Address | null;
  /** The origin an x402 payment goes to; a plain spend has none. */
  site?: string;
  amountAtomic: bigint;
  maxAmountAtomic?: bigint;
  /** The amount is the most that may be charged. */
  isMaximum?: true;
  refusal?: TargetRefusal;
  nonce: Nonce;
  /** The payee chose the nonce: another payment's is refused, and no permit's takes its place. */
  prescribed?: true;
  /**
   * `validBefore` is this much after the database's now or the newest block's time, whichever is earlier; a
   * process clock decides nothing.
   */
  validForSeconds: number;
  requestId: string | null;
  /** As of a block, whose time is compared with the database's clock. */
  balance: { atomic: bigint; blockNumber: bigint; timestampSeconds?: bigint };
  /** Where the wallet is funded: returned with insufficient_funds. */
  walletAddress: Address;
  /** What its gas may cost, set aside with it, and the least amount that is worth it (units of core/gas.ts; atomic). */
  gas?: { hold: bigint; floorAtomic: bigint };
  memo?: string;
  url?: string;
  listingId?: string;
  requirement?: unknown;
  idempotency?: IdempotencyRef;
}

export type ReserveResult =
  | {
      kind: "reserved";
      paymentId: string;
      validBeforeSeconds: bigint;
      remainingAtomic: bigint;
      snapshot: Snapshot;
    }
  | {
      kind: "denied";
      error: ApiError;
      code: ErrorCode;
      paymentId: string | null;
      /** The owner may let this one payment pass. */
      liftable: boolean;
    }
  | KeyInUse;

/** The Idempotency-Key has been taken meanwhile, and by which request. */
export type KeyInUse =
  | { kind: "replay"; statusCode: number; response: string | null; paymentId: string | null }
  | { kind: "in_progress"; paymentId: string | null }
  | { kind: "key_reused" }
  /** No key, but the call itself: its caller waits no longer. */
  | { kind: "canceled" };

/** A dry run: the verdict of every rule, nothing written. */
export interface Verdict {
  allowed: boolean;
  /** The error a real request would get. */
  error: ApiError | null;
  code: DenialCode | null;
  trace: RuleVerdict[];
  policy: Policy | null;
  availableAt: string | null;
  nextReleaseAt: string | null;
  remainingAtomic: bigint;
}

/** The numbers of one window; those of an hour are payments, all others amounts. */
export interface WindowLimits {
  limitAtomic: bigint;
  spentAtomic: bigint;
  reservedAtomic: bigint;
  remainingAtomic: bigint;
  nextReleaseAt: Date | null;
}

/** By payeeKey: those with a limit of their own, of which all that goes to the address is counted. */
export type PayeeLimits = Map<string, WindowLimits>;

/** Those of the day, and of every other window a limit is set for. */
export interface Limits extends WindowLimits {
  weekly: WindowLimits | null;
  monthly: WindowLimits | null;
  hourly: WindowLimits | null;
  /** Empty where they were not requested. */
  payees: PayeeLimits;
}

/** Names one request for good: the same key with another body is a different request, and refused. */
export interface IdempotencyRef {
  /** The agent's or the owner's id. */
  subjectId: string;
  route: string;
  key: string;
  bodyHash: Uint8Array;
  /** Where the caller sent no key, and this one is ours. */
  joins?: JoiningCall;
  /** What a cancellation names, where there can be one. */
  call?: string;
  /** This process knows that nobody waits any more: nothing is signed. */
  isCanceled?: () => boolean;
  /** Waits for room in memory for a long answer that is kept; throws when there is none in time. */
  room?: () => Promise<void>;
}

/** A call without a key joins an earlier one like it whose answer was not delivered (docs/decisions/0025). */
export interface JoiningCall {
  /** On this process' monotonic clock. */
  cameAtMs: number;
  /** Whoever called is gone: there is no use in waiting for him. */
  isGone: () => boolean;
  /** The key of an earlier answer that was delivered before this call came. */
  heard?: string;
  /** Once it has its answer: the key that is kept under, its own or that of the call it joined. */
  answeredBy?: string;
}

const KEY_PATTERN = /^[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?$/;

/** Reads the Idempotency-Key header; undefined when there is none. */
export function readIdempotencyKey(header: string | string[] | undefined): string | undefined {
  if (header === undefined) return undefined;
  if (typeof header !== "string" || !KEY_PATTERN.test(header))
    throw new ApiError("idempotency_key_invalid", {
      detail: "Send one Idempotency-Key of 1 to 255 printable ASCII characters.",
    });
  return header;
}

/** The route is hashed too: one key used on two routes names two requests. */
export function hashBody(route: string, body: unknown): Uint8Array {
  return createHash("sha256")
    .update(`${route}\n${canonicalJson(body)}`)
    .digest();
}

/** JSON with sorted keys: the same object written in another order is the same request. */
export function canonicalJson(value: unknown): string {
  if (value instanceof ExactJson) return value.text;
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value)
      .filter(([, member]) => member !== undefined)
      .sort(([left], [right]) => (left < right ? -1 : 1))
      .map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member)}`);
    return `{${members.join(",")}}`;
  }
  return JSON.stringify(value) ?? "null";
}

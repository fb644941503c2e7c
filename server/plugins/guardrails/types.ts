/** Types of the guardrails: requests, facts and decisions. */
import { createHash } from "node:crypto";
import type { Address, Hex } from "viem";
import type { Nonce } from "../../core/authorization.ts";
import { ExactJson } from "../../core/exact-json.ts";
import { ApiError, type ErrorCode } from "../../errors.ts";
import type { DenialCode, PolicyNumbers, RuleName, Snapshot, TargetCode } from "./rules.ts";

/** A payment through a channel: the seller's terms, and the channel to open if none with these terms is open. */
export interface ChannelWanted {
  id: Hex;
  salt: Hex;
  /** Signs its vouchers. */
  signer: Address;
  receiverAuthorizer: Address;
  /** Seconds. */
  withdrawDelay: number;
  minDepositAtomic: bigint;
  /** The payment's id of a deposit. */
  depositId: string;
  /** How long the request may take: no other uses the channel meanwhile. */
  busySeconds: number;
}

export interface RuleVerdict {
  rule: RuleName;
  /** Null: not checked, because an earlier rule refused. */
  passed: boolean | null;
  detail: string;
  /** For a rolling limit that did not pass: when it alone will allow this amount; null: never. */
  availableAt?: string | null;
  /** The rule refused, and the owner may approve this one payment (`requestApproval`). */
  liftable?: true;
}

/** When a rolling limit has room again. */
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

/** The member `policy` of a denial, in its wire format. */
export interface Policy extends PolicyNumbers {
  rule: RuleName;
  requested: string;
}

/** A problem with the target that was found before any rule was checked. */
export interface TargetRefusal {
  code: TargetCode;
  detail?: string;
}

export interface ReserveRequest {
  agentId: string;
  /** Checked again under the lock: a revoked key pays nothing. Null when the owner tries out the agent. */
  apiKeyId: string | null;
  kind: "spend" | "x402";
  chainId: number;
  asset: Address;
  /** Null only with a refusal that came before a payee was known. */
  to: Address | null;
  /** The origin that an x402 payment goes to. Undefined for a plain spend. */
  site?: string;
  amountAtomic: bigint;
  maxAmountAtomic?: bigint;
  /** The amount is the most that may be charged. */
  isMaximum?: true;
  refusal?: TargetRefusal;
  nonce: Nonce;
  /**
   * The payee chose the nonce: it is refused if another payment used it, and an approval's nonce cannot replace
   * it.
   */
  prescribed?: true;
  /**
   * `validBefore` is this long after the database time or the newest block's time, whichever is earlier. The
   * process clock is not used.
   */
  validForSeconds: number;
  requestId: string | null;
  /** As of a block, whose time is compared with the database clock. Without an amount for a channel that may have enough. */
  balance: { atomic?: bigint; blockNumber?: bigint; timestampSeconds?: bigint };
  /** The address to fund, returned with insufficient_funds. */
  walletAddress: Address;
  /**
   * The gas cost to reserve with it (units of core/gas.ts), and the smallest amount worth its gas (atomic
   * units).
   */
  gas?: { hold: bigint; floorAtomic: bigint };
  memo?: string;
  url?: string;
  listingId?: string;
  requirement?: unknown;
  idempotency?: IdempotencyRef;
  channel?: ChannelWanted;
  /** The agent's task in which it counts. */
  task?: string;
}

export type ReserveResult =
  | {
      kind: "reserved";
      paymentId: string;
      validBeforeSeconds: bigint;
      remainingAtomic: bigint;
      snapshot: Snapshot;
    }
  /** Another payment uses the channel; a channel serves one request at a time. */
  | { kind: "channel_busy"; paymentId: string | null }
  /** The channel needs a deposit, and the wallet's balance was not given. */
  | { kind: "balance_needed" }
  | {
      kind: "denied";
      error: ApiError;
      code: ErrorCode;
      paymentId: string | null;
      /** The owner may approve this one payment. */
      liftable: boolean;
    }
  | KeyInUse;

/** The Idempotency-Key is in use by another request, and in which state. */
export type KeyInUse =
  | { kind: "replay"; statusCode: number; response: string | null; paymentId: string | null }
  | { kind: "in_progress"; paymentId: string | null }
  | { kind: "key_reused" }
  /** Not the key, but the call itself was canceled: its client no longer waits. */
  | { kind: "canceled" };

/** The result of a dry run: the verdict of every rule. Nothing is written. */
export interface Verdict {
  allowed: boolean;
  /** The error that a real request would get. */
  error: ApiError | null;
  code: DenialCode | null;
  trace: RuleVerdict[];
  policy: Policy | null;
  availableAt: string | null;
  nextReleaseAt: string | null;
  remainingAtomic: bigint;
}

/** Identifies a request permanently: the same key with another body is a different request, and refused. */
export interface IdempotencyRef {
  /** The agent's or the owner's id. */
  subjectId: string;
  route: string;
  key: string;
  bodyHash: Uint8Array;
  /** Set when the caller sent no key, and this key was generated. */
  joins?: JoiningCall;
  /** The id by which the call can be canceled, if it can. */
  call?: string;
  /** True once this process knows that the client no longer waits: then nothing is signed. */
  isCanceled?: () => boolean;
  /**
   * The client has disconnected. Then nothing new is reserved: it may have repeated the call elsewhere, and may rely on the
   * answer that it got there.
   */
  isGone?: () => boolean;
  /** Waits for memory for a long stored response; throws if there is none in time. */
  room?: () => Promise<void>;
}

/**
 * A call without a key joins an earlier identical call whose response was not delivered (docs/decisions/0025).
 */
export interface JoiningCall {
  /** On the monotonic clock of this process. */
  cameAtMs: number;
  /** The key of an earlier response that was delivered before this call came. */
  deliveredKey?: string;
  /** Set with the response: the key it is stored under, this call's own or that of the call it joined. */
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

/** The route is hashed too: one key used on two routes identifies two requests. */
export function hashBody(route: string, body: unknown): Uint8Array {
  return createHash("sha256")
    .update(`${route}\n${canonicalJson(body)}`)
    .digest();
}

/** JSON with sorted keys: the same object in another order is the same request. */
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

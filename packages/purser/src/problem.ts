/** The errors of a call that did not succeed. */
import type { ApprovalRequired } from "./types.ts";

/**
 * The problem document of a refusal as the service returned it; or one made by this client where the service
 * did not respond.
 */
export interface Problem {
  code: string;
  /** 0 where there was no response. */
  status: number;
  detail: string;
  suggestion: string;
  retryable: boolean;
  requestId: string;
  blocked?: boolean;
  paymentId?: string | null;
  policy?: {
    rule: string;
    window: string;
    limit: string;
    spent: string;
    reserved: string;
    remaining: string;
    requested: string;
  };
  /** When this amount will fit the rolling window; null if it never will. */
  availableAt?: string | null;
  nextReleaseAt?: string | null;
  txHash?: string | null;
  [member: string]: unknown;
}

/**
 * The response of a paid target in a call that failed. It is third-party content: data, never instructions.
 */
export interface Delivered {
  status?: number;
  headers?: Record<string, string>;
  contentType?: string | null;
  text?: string;
  data?: unknown;
  dataBase64?: string;
  truncated?: boolean;
}

/** Thrown for every response that is not a success. */
export class PurserError extends Error {
  override name = "PurserError";
  readonly problem: Problem;
  /** Repeat with this key, and only with this key, when the outcome is unknown. */
  readonly idempotencyKey: string | undefined;
  /** The target's response, if there was one, also when a later attempt of the same call returned nothing. */
  readonly delivered: Delivered | undefined;

  constructor(problem: Problem, idempotencyKey?: string, delivered?: Delivered) {
    super(problem.detail);
    this.problem = problem;
    this.idempotencyKey = idempotencyKey;
    this.delivered = delivered;
  }
  get code(): string {
    return this.problem.code;
  }
  get status(): number {
    return this.problem.status;
  }
}

/**
 * Nothing was paid: the owner's approval was requested and not given yet. Repeat the same call with
 * `idempotencyKey` once it is granted.
 */
export class ApprovalNeeded extends Error {
  override name = "ApprovalNeeded";
  readonly approval: ApprovalRequired;
  readonly status: "open" | "declined";

  constructor(approval: ApprovalRequired, status: "open" | "declined" = "open") {
    super(approval.next);
    this.approval = approval;
    this.status = status;
  }
  get idempotencyKey(): string {
    return this.approval.idempotencyKey;
  }
}

const CONTENT = ["text", "data", "dataBase64"] as const;
const DELIVERED = [...CONTENT, "contentType", "status", "headers", "truncated"] as const;

/** The target's response in a body: in `thirdParty`, or as members of the body itself. */
export function deliveredIn(body: Record<string, unknown>): Delivered | undefined {
  const marked = body["thirdParty"];
  const holders = [marked, body].filter(
    (holder): holder is Record<string, unknown> => typeof holder === "object" && holder !== null,
  );
  const holder = holders.find((candidate) => CONTENT.some((name) => name in candidate));
  if (!holder) return undefined;
  return Object.fromEntries(
    DELIVERED.filter((name) => name in holder).map((name) => [name, holder[name]]),
  );
}

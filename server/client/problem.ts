/** The problem document of a refusal, as the service wrote it. */
export interface Problem {
  code: string;
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

/** Thrown for every answer that is not a success. */
export class PurserError extends Error {
  override name = "PurserError";
  readonly problem: Problem;
  /** Repeat with this key, and only with this key, when the outcome is unknown. */
  readonly idempotencyKey: string | undefined;

  constructor(problem: Problem, idempotencyKey?: string) {
    super(problem.detail);
    this.problem = problem;
    this.idempotencyKey = idempotencyKey;
  }
  get code(): string {
    return this.problem.code;
  }
  get status(): number {
    return this.problem.status;
  }
}

/** What the client reports when there was no answer to read. */
export const noAnswer = (error: unknown): Problem => ({
  code: "no_answer",
  status: 0,
  detail: `The service gave no answer: ${error instanceof Error ? error.message : String(error)}`,
  suggestion:
    "Check the base URL and the network; repeat a payment only with the same Idempotency-Key.",
  retryable: true,
  requestId: "",
});

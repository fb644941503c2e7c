/**
 * Decides and reserves (docs/decisions/0003): one call, one round trip, and every refusal is recorded. SQL decides; the
 * rules explain the decision.
 */
import { getAddress, type Address } from "viem";
import { newId } from "../../core/ids.ts";
import { formatAtomic } from "../../core/money.ts";
import { ApiError, ERRORS, type ErrorCode } from "../../errors.ts";
import { otherCell } from "../http/errors.ts";
import {
  dailyNumbers,
  DENIAL_CODES,
  remainingOf,
  RULES,
  type DenialCode,
  type Moment,
  type RuleName,
  type Snapshot,
} from "./rules.ts";
import type { ReservationRow } from "./store.ts";
import type {
  Evaluation,
  KeyInUse,
  Policy,
  Release,
  ReserveRequest,
  ReserveResult,
  RuleVerdict,
  Verdict,
} from "./types.ts";

interface GuardrailsDeps {
  reserve(
    request: ReserveRequest & { paymentId: string; dryRun: boolean },
  ): Promise<ReservationRow>;
  /** Counts denials in the metrics. */
  denied?: (code: string) => void;
  log: {
    info(fields: object, message: string): void;
    error(fields: object, message: string): void;
  };
}

export class Guardrails {
  readonly #deps: GuardrailsDeps;

  constructor(deps: GuardrailsDeps) {
    this.#deps = deps;
  }

  async reserve(request: ReserveRequest): Promise<ReserveResult> {
    const row = await this.#deps.reserve({ ...request, paymentId: newId("pay"), dryRun: false });
    switch (row.outcome) {
      case "reserved": {
        const snapshot = required(row.snapshot, "snapshot");
        const used = snapshot.spent + snapshot.reserved + snapshot.requested;
        return {
          kind: "reserved",
          paymentId: required(row.paymentId, "payment id"),
          validBeforeSeconds: required(row.validBefore, "validBefore"),
          remainingAtomic: remainingOf(snapshot.limit, used),
          snapshot,
        };
      }
      case "blocked":
        return this.#denied(request, row);
      case "replay":
      case "running":
      case "key_reused":
        return keyInUse(row.outcome, row);
      case "canceled":
        return { kind: "canceled" };
      case "busy":
        return { kind: "channel_busy", paymentId: row.paymentId };
      case "balance_needed":
        return { kind: "balance_needed" };
      case "unauthorized": {
        const error = unauthorized(row);
        return { kind: "denied", error, code: error.code, paymentId: null, liftable: false };
      }
      case "moved":
        throw movedAway(row);
      case "clock_apart":
        throw clocksApart(this.#deps.log, request);
      case "held":
        throw behindTheChain();
      default:
        throw new ApiError("not_found");
    }
  }

  /** The decision that a real request would get now; writes and locks nothing. */
  async evaluate(request: ReserveRequest): Promise<Verdict> {
    const row = await this.#deps.reserve({ ...request, paymentId: newId("pay"), dryRun: true });
    if (row.outcome === "unauthorized") throw unauthorized(row);
    if (row.outcome === "moved") throw movedAway(row);
    if (row.snapshot === null) throw new ApiError("not_found");
    const { snapshot } = row;
    const evaluation = explained(row, snapshot);
    const base = {
      trace: evaluation.trace.map((verdict) => withTime(verdict, row.releases)),
      availableAt: row.availableAt?.toISOString() ?? null,
      nextReleaseAt: row.nextReleaseAt?.toISOString() ?? null,
      remainingAtomic: remainingOf(snapshot.limit, snapshot.spent + snapshot.reserved),
    };
    if (evaluation.allowed)
      return { ...base, allowed: true, error: null, code: null, policy: null };
    return {
      ...base,
      allowed: false,
      error: refusal(request, row, { snapshot, refused: evaluation }),
      code: evaluation.code,
      policy: policyOf(snapshot, evaluation.rule),
    };
  }

  #denied(request: ReserveRequest, row: ReservationRow): ReserveResult {
    const snapshot = required(row.snapshot, "snapshot");
    const refused = explained(row, snapshot);
    if (refused.allowed) throw new Error("guardrails disagree: refused without a code");
    const error = refusal(request, row, { snapshot, refused });
    this.#deps.log.info(
      { agentId: request.agentId, paymentId: row.paymentId, code: error.code },
      "payment refused by a guardrail",
    );
    this.#deps.denied?.(error.code);
    const liftable = error.extra["approvable"] === true;
    return { kind: "denied", error, code: error.code, paymentId: row.paymentId, liftable };
  }
}

/** SQL decides, and the rules explain. If they differ, throw instead of contradicting the decision. */
function explained({ code }: ReservationRow, snapshot: Snapshot): Evaluation {
  if (code !== null && !isKnown(code)) throw refusedByNewerRule(code);
  const evaluation = evaluate(snapshot);
  const explanation = evaluation.allowed ? null : evaluation.code;
  if (explanation !== code) throw new Error(`guardrails disagree: ${code}, ${explanation}`);
  return evaluation;
}

const isKnown = (code: string): boolean => (DENIAL_CODES as readonly string[]).includes(code);

/** A newer release beside this one has installed its SQL functions, which have a rule that this release lacks. */
const refusedByNewerRule = (code: string): ApiError =>
  new ApiError("policy_version_unknown", {
    detail: `A rule of a newer release of this service refused the payment (${code}). Nothing was signed.`,
  });

function refusal(
  request: ReserveRequest,
  row: ReservationRow,
  { snapshot, refused }: { snapshot: Snapshot; refused: Extract<Evaluation, { allowed: false }> },
): ApiError {
  const { code, rule, detail } = refused;
  return denialError({
    code,
    rule,
    snapshot,
    paymentId: row.paymentId,
    nextReleaseAt: row.nextReleaseAt,
    availableAt: row.availableAt,
    walletAddress: request.walletAddress,
    payTo: request.to,
    ...(request.site !== undefined && { site: request.site }),
    detail: (code === request.refusal?.code ? request.refusal.detail : undefined) ?? detail,
  });
}

/** Adds when a rule that did not pass, or was not checked, will pass by itself. */
function withTime(verdict: RuleVerdict, releases: readonly Release[]): RuleVerdict {
  const release = releases.find(({ rule }) => rule === verdict.rule);
  if (verdict.passed === true || release === undefined) return verdict;
  return { ...verdict, availableAt: release.availableAt?.toISOString() ?? null };
}

/** The API key was revoked or expired between authentication and the decision. */
const unauthorized = ({ code }: ReservationRow): ApiError =>
  new ApiError(code as ErrorCode, { headers: { "www-authenticate": "Bearer" } });

/** The owner began to move to another cell between authentication and the decision. */
const movedAway = ({ code, response }: ReservationRow): ApiError =>
  otherCell({ cell: code ?? "", url: response ?? "" });

/**
 * The clock of the database or the chain has jumped, or the chain stands still: an authorization signed now could be
 * valid for hours, or already expired.
 */
export function clocksApart(
  log: { error(fields: object, message: string): void },
  about: { agentId: string; chainId: number },
): ApiError {
  const { agentId, chainId } = about;
  log.error({ agentId, chainId }, "the clocks of the database and the chain are far apart");
  return new ApiError("chain_unavailable", {
    detail:
      "The newest block's time and this service's clock are too far apart. Nothing was signed.",
  });
}

/**
 * Reconciliation holds the payments of this chain's agents, because the limits may lack payments
 * (plugins/reconciliation/hold.ts).
 */
export const behindTheChain = (): ApiError =>
  new ApiError("chain_unavailable", {
    detail:
      "The database is behind the chain. Agents can pay again when the ledger has caught up. Nothing was signed.",
  });

/**
 * Both SQL functions that reserve look up the idempotency key again under the agent's lock, and return these
 * outcomes.
 */
export function keyInUse(
  outcome: "replay" | "running" | "key_reused",
  row: { paymentId: string | null; statusCode: number | null; response: string | null },
): KeyInUse {
  switch (outcome) {
    case "replay":
      return {
        kind: "replay",
        statusCode: row.statusCode ?? 200,
        response: row.response,
        paymentId: row.paymentId,
      };
    case "running":
      return { kind: "in_progress", paymentId: row.paymentId };
    default:
      return { kind: outcome };
  }
}

function required<T>(value: T | null, name: string): T {
  if (value === null) throw new Error(`purser_reserve answered without a ${name}`);
  return value;
}

/**
 * Evaluates the rules as a pure function, with the order and comparisons of the SQL function purser_first_refusal, which
 * decides about real payments. This one explains decisions: for dry runs, and for the trace that an owner sees.
 */
export function evaluate(snapshot: Snapshot): Evaluation {
  const trace: RuleVerdict[] = [];
  let refused: Omit<Extract<Evaluation, { allowed: false }>, "allowed" | "trace"> | undefined;
  for (const rule of RULES) {
    const found = rule.check(snapshot);
    if (found === null) continue;
    const { refusal, detail } = found;
    if (refused !== undefined) {
      trace.push({
        rule: rule.name,
        passed: null,
        detail: "Not checked: an earlier rule refused the payment.",
      });
      continue;
    }
    if (refusal !== null && rule.liftable && snapshot.approval) {
      const lifted = `${detail} The owner's approval ${snapshot.approval.id} allows it once.`;
      trace.push({ rule: rule.name, passed: true, detail: lifted });
      continue;
    }
    const mayBeLifted = refusal !== null && rule.liftable === true;
    trace.push({
      rule: rule.name,
      passed: refusal === null,
      detail,
      ...(mayBeLifted && { liftable: true }),
    });
    if (refusal !== null) refused = { code: refusal, rule: rule.name, detail };
  }
  return refused === undefined ? { allowed: true, trace } : { allowed: false, ...refused, trace };
}

/** Whether the owner may approve a payment that this rule refuses. */
const isLiftable = (name: RuleName): boolean =>
  RULES.some((rule) => rule.name === name && rule.liftable === true);

/** The numbers that the refusing rule compared. */
export function policyOf(snapshot: Snapshot, rule: RuleName): Policy {
  const judge = RULES.find(({ name }) => name === rule);
  return {
    rule,
    ...(judge?.policy?.(snapshot) ?? dailyNumbers(snapshot)),
    requested: formatAtomic(judge?.compared?.(snapshot) ?? snapshot.requested),
  };
}

export interface Denial extends Moment {
  code: DenialCode;
  rule: RuleName;
  snapshot: Snapshot;
  paymentId: string | null;
  /** The sentence of the rule that refused. */
  detail: string;
  /** The payee, and the origin that was fetched. */
  payTo?: Address | null;
  site?: string;
}

/** The payee that the owner would have to allow, and for which site. */
function whomToAllow({ payTo, site, code, rule }: Denial): Record<string, unknown> {
  if (rule !== "allowlist" || !payTo) return {};
  const address = getAddress(payTo);
  const where = site === undefined ? "" : `, for ${site} or for all sites`;
  return {
    payTo: address,
    site: site ?? null,
    ...(code === "recipient_not_allowed" && {
      suggestion: `Ask the owner to allow ${address}${where}.`,
    }),
  };
}

/** An error that an agent can act on: why, by which numbers, and when to retry. */
export function denialError(denial: Denial): ApiError {
  const { code, rule, snapshot } = denial;
  const advice = RULES.find(({ name }) => name === rule)?.advise?.(snapshot, denial);
  return new ApiError(code, {
    detail: denial.detail,
    extra: {
      blocked: true,
      retryable: advice?.retryable ?? ERRORS[code].retryable,
      suggestion: advice?.suggestion ?? ERRORS[code].help,
      paymentId: denial.paymentId,
      policy: policyOf(snapshot, rule),
      ...whomToAllow(denial),
      ...advice?.extra,
      ...(isLiftable(rule) && { approvable: true }),
    },
  });
}

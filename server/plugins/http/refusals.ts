/**
 * Derives a route's possible refusals from its declarations: its credential, method, body and limits. The OpenAPI
 * document is generated from this, and the tests check every response of every route against it. A route lists only its
 * own additional errors (`config.errors`).
 */
import type { FastifyContextConfig, FastifySchema } from "fastify";
import type { ErrorCode } from "../../errors.ts";
import { ERRORS } from "../../errors.ts";

/** The credential that a route requires. Every route declares one; a route without one stops the boot. */
export type Credential = "public" | "agent" | "owner" | "operator" | "facilitator" | "cell";
export const CREDENTIALS: readonly Credential[] = [
  "public",
  "agent",
  "owner",
  "operator",
  "facilitator",
  "cell",
];

declare module "fastify" {
  interface FastifyContextConfig {
    /** Codes of this route, in addition to those that follow from its credential, body and limits. */
    errors?: readonly ErrorCode[];
    /** The route accepts the header `Idempotency-Key`. */
    idempotencyKey?: true;
    /** Response headers of this route only: by name, with the statuses that have them. */
    answerHeaders?: Readonly<Record<string, { statuses: readonly number[]; description: string }>>;
  }
}

/** A registered route and who may call it. */
export interface KnownRoute {
  method: string;
  url: string;
  auth: Credential;
}

/** The parts of a route that the document and the tests read. */
export interface DeclaredRoute {
  method: string;
  url: string;
  config: FastifyContextConfig;
  schema: FastifySchema;
}

const SAFE_METHODS = new Set(["GET", "HEAD"]);

/** Refusals before routing, or for every caller. */
const ANY: readonly ErrorCode[] = [
  "bad_request",
  "request_timeout",
  "host_not_allowed",
  "rate_limited",
  "headers_too_large",
  "internal_error",
  "service_unavailable",
];
const OF_CREDENTIAL: Record<Credential, readonly ErrorCode[]> = {
  public: [],
  agent: [
    "missing_api_key",
    "invalid_api_key",
    "invalid_access_token",
    "api_key_revoked",
    "api_key_expired",
    "wrong_cell",
    "other_cell",
  ],
  owner: ["session_required", "other_cell"],
  facilitator: [
    "missing_api_key",
    "invalid_api_key",
    "api_key_revoked",
    "merchant_not_admitted",
    "wrong_cell",
    "other_cell",
  ],
  cell: ["not_found"],
  // For everybody else the route does not exist.
  operator: ["not_found"],
};
/** Refusals of a method that may have a body, whether the route needs one or not. */
const OF_BODY: readonly ErrorCode[] = ["invalid_json", "body_too_large", "unsupported_media_type"];
/** An agent is changed by one request at a time, and not once it is archived. */
const OF_AGENT: readonly ErrorCode[] = ["conflict", "agent_busy"];
/** Refusals of an owner's order (docs/decisions: loosening needs the owner's signature). */
const OF_ORDER: readonly ErrorCode[] = [
  "signatures_missing",
  "invalid_signature",
  "owner_signature_required",
  "second_wallet_only_tightens",
  "policy_changed",
  "owner_stopped",
  "order_used",
  "conflict",
  "signature_expired",
  "account_screened",
  "screening_unavailable",
  "chain_unavailable",
  "policy_not_signed",
  "policy_version_unknown",
  "keys_unavailable",
];
const OF_KEPT_ANSWERS: readonly ErrorCode[] = [
  "idempotency_in_progress",
  "answer_not_kept",
  "idempotency_key_reused",
];
/** Refusals of requests that probe a third-party URL. */
const OF_TARGET: readonly ErrorCode[] = [
  "url_blocked",
  "unsupported_payment_requirements",
  "fetch_capacity",
  "upstream_error",
  "upstream_invalid_402",
  "upstream_redirect",
  "upstream_timeout",
];

/** All error codes of the route by status, in the order of the registry. */
export function refusalsOf(route: DeclaredRoute): Map<number, ErrorCode[]> {
  const codes = new Set(codesOf(route));
  const byStatus = new Map<number, ErrorCode[]>();
  for (const code of Object.keys(ERRORS) as ErrorCode[]) {
    if (!codes.has(code)) continue;
    const { status } = ERRORS[code];
    byStatus.set(status, [...(byStatus.get(status) ?? []), code]);
  }
  return new Map([...byStatus].sort(([left], [right]) => left - right));
}

function codesOf({ method, url, config, schema }: DeclaredRoute): ErrorCode[] {
  const { auth = "public", limit, guardrails, errors = [], idempotencyKey } = config;
  const isUnsafe = !SAFE_METHODS.has(method);
  const fields = new Set([...fieldsOf(schema.body), ...fieldsOf(schema.params)]);
  const isRead = [schema.params, schema.querystring, schema.body].some(
    (part) => part !== undefined,
  );
  return [
    ...ANY,
    ...OF_CREDENTIAL[auth],
    ...(isUnsafe ? OF_BODY : []),
    ...(isUnsafe && auth === "owner"
      ? (["origin_not_allowed", "second_wallet_only_tightens", "role_not_allowed"] as const)
      : []),
    ...(isUnsafe && auth === "operator" ? (["origin_not_allowed"] as const) : []),
    ...(isRead ? (["validation_failed"] as const) : []),
    ...(schema.params === undefined ? [] : (["not_found"] as const)),
    ...(AMOUNTS.some((name) => fields.has(name)) ? (["invalid_amount"] as const) : []),
    ...(ADDRESSES.some((name) => fields.has(name)) ? (["invalid_address"] as const) : []),
    ...(fields.has("authorization") ? OF_ORDER : []),
    ...(isUnsafe && auth === "owner" && url.startsWith("/api/agents/:id") ? OF_AGENT : []),
    ...(idempotencyKey ? (["idempotency_key_invalid"] as const) : []),
    // A facilitator's responses follow the protocol, which reports a reused key in its own form.
    ...(idempotencyKey && auth !== "facilitator" ? OF_KEPT_ANSWERS : []),
    ...(limit === "probe" || isFetch(guardrails) ? OF_TARGET : []),
    ...errors,
  ];
}

/** An invalid field with one of these meanings has its own code. */
const AMOUNTS = ["amount", "maxAmount", "maxPrice", "dailyLimit", "perPaymentLimit"];
const ADDRESSES = ["recipient", "address", "allowlist", "to", "owner"];

const fieldsOf = (schema: unknown): string[] =>
  Object.keys((schema as { properties?: object } | undefined)?.properties ?? {});

const isFetch = (guardrails: unknown): boolean =>
  (guardrails as { kind?: string } | undefined)?.kind === "x402";

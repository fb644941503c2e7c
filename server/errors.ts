import { DENIALS, type Denial } from "../packages/rules/src/denials.ts";
import { MAX_JSON_DEPTH } from "./core/foreign-text.ts";

/**
 * The table of error codes: status, title and help; packages/rules/src/denials.ts has those of an agent's rules.
 * `GET /openapi.json` lists it, the error handler uses it, and the docs are generated from it.
 */
interface ErrorDefinition {
  readonly status: number;
  readonly title: string;
  /** The meaning and what to do, for the error catalogue. */
  readonly help: string;
  /** Whether the same request may succeed later without a change. */
  readonly retryable: boolean;
}

const define = (
  status: number,
  title: string,
  help: string,
  retryable = false,
): ErrorDefinition => ({ status, title, help, retryable });

/** The refusals by an agent's rules, without what only the web app needs. */
const ofRules = Object.fromEntries(
  Object.entries<Omit<ErrorDefinition, "retryable"> & { retryable?: true }>(DENIALS).map(
    ([code, { status, title, help, retryable }]) => [code, define(status, title, help, retryable)],
  ),
) as Record<Denial, ErrorDefinition>;

export const ERRORS = {
  invalid_json: define(
    400,
    "Invalid JSON",
    `Send a body that parses as JSON, nested at most ${MAX_JSON_DEPTH} levels deep.`,
  ),
  bad_request: define(400, "Bad request", "The HTTP request itself is malformed."),
  idempotency_key_invalid: define(
    400,
    "Invalid Idempotency-Key",
    "Use 1 to 255 printable ASCII characters.",
  ),

  missing_api_key: define(401, "API key missing", "Send `Authorization: Bearer <AGENT_API_KEY>`."),
  invalid_api_key: define(401, "API key not known", "Check the key, or ask the owner for one."),
  api_key_revoked: define(401, "API key revoked", "Ask the owner for a new key."),
  api_key_expired: define(401, "API key expired", "Ask the owner for a new key."),
  invalid_access_token: define(
    401,
    "Access token not valid",
    "Renew it at /oauth/token, or connect again. It opens /mcp and nothing else.",
  ),
  wrong_cell: define(
    421,
    "Key of another cell",
    "The proxy in front of the cells must send each key to its cell. `cell` names it.",
  ),
  other_cell: define(
    421,
    "Account of another cell",
    "Use `url`: an owner's account, with its agents and keys, is in one cell.",
  ),
  session_required: define(401, "Sign in required", "Sign in with the owner's wallet."),
  invalid_signature: define(
    401,
    "Signature not valid",
    "Sign the exact message with the right wallet.",
  ),

  ...ofRules,

  owner_stopped: define(
    409,
    "The owner stopped everything",
    "Resume first, which the owner signs. Pausing, lowering, revoking, closing channels and withdrawing work meanwhile.",
  ),
  channel_busy: define(
    503,
    "Payment channel in use",
    "The agent's other requests to this seller use the payment channel, which serves one at a time. Nothing was signed. Retry.",
    true,
  ),
  proof_of_control_required: define(
    403,
    "Proof of control required",
    'Serve `{"owners":["<your address>"]}` at `wellKnownUrl`, then retry.',
  ),

  owner_signature_required: define(
    403,
    "The owner's wallet must sign this",
    "Sign `typedData` with the owner's wallet (`eth_signTypedData_v4`), then send the same request with `authorization: {order, signature}`.",
  ),

  program_refused: define(
    422,
    "Program not known",
    "Remove the server in the program and add it again, so that it registers again.",
  ),
  return_address_refused: define(
    422,
    "Return address not allowed",
    "A program may send you back only to an address it registered: https, this computer (http on localhost), or an app's own scheme.",
  ),

  merchant_not_admitted: define(
    403,
    "Merchant not admitted",
    "This facilitator settles only for merchants that its operator admitted. Ask the operator to add your address to MERCHANTS.",
  ),

  second_wallet_only_tightens: define(
    403,
    "The recovery wallet can only tighten rules",
    "The owner's recovery wallet can tighten rules, pause agents and withdraw to the owner's address. Sign in with the owner's wallet for the rest.",
  ),

  role_not_allowed: define(
    403,
    "Your role in this team does not allow this",
    "Ask an admin of the team, or act for your own account.",
  ),
  signatures_missing: define(
    202,
    "Other members of the team must sign too",
    "Ask them to sign the waiting order `id`; then send the request again with all signatures.",
  ),

  payout_address_only: define(
    403,
    "A passkey withdraws to your own address only",
    "Withdraw to your payout address; with a wallet, to that wallet, or sign with the wallet to name another address.",
  ),

  approval_declined: define(
    403,
    "Declined by the owner",
    "Do not ask again, and do not pay in another way.",
  ),
  approval_closed: define(409, "The approval is not open", "Already decided or expired."),
  too_many_approvals: define(
    429,
    "Too many approvals",
    "Wait until the requests in `approvalIds` are decided or expire.",
    true,
  ),

  not_found: define(404, "Not found", "Check the path and the id."),
  method_not_allowed: define(405, "Method not allowed", "Use a method of the Allow header."),

  idempotency_in_progress: define(409, "Still running", "Retry with the same key soon.", true),
  call_canceled: define(
    409,
    "Cancelled by the caller",
    "The call was cancelled before anything was signed. Nothing was paid. Call again to pay.",
    true,
  ),
  answer_not_kept: define(
    409,
    "The answer was not kept",
    "This request was answered before, and the response is no longer stored. `freeAnswer` or `paymentId` describes it. Use a new key to fetch it again.",
  ),
  duplicate_settlement: define(
    409,
    "Payment already settled",
    "This authorization was settled before. See `txHash`.",
  ),
  withdrawal_replayed: define(409, "Withdrawal order used", "Prepare and sign a new order."),
  settlement_not_final: define(
    409,
    "Settlement is not final",
    "A payment can be refunded when it is final on chain. Retry soon.",
    true,
  ),
  not_refundable: define(
    409,
    "Nothing to refund",
    "The payment was not settled, or it was refunded in full. `refundable` is what is left.",
  ),
  refund_changed: define(
    409,
    "Another refund came first",
    "Another refund of this settlement came first. Nothing was sent. Read its refunds, then send the request without `authorization` again.",
  ),
  agent_has_funds: define(
    409,
    "Agent still has funds",
    "Withdraw everything and wait for outstanding payments first.",
  ),
  listing_not_active: define(
    409,
    "Listing is not active",
    "The seller's endpoint is paused or failing. Choose another.",
  ),
  listing_quota_exceeded: define(
    409,
    "Too many listings",
    "Remove a listing you no longer need, then retry.",
  ),
  webhook_quota_exceeded: define(
    409,
    "Too many webhooks",
    "Delete one you no longer need, then retry.",
  ),
  webhook_not_active: define(
    409,
    "Webhook is not active",
    'It is paused or disabled. Set `status` to "active" first.',
  ),
  policy_changed: define(
    409,
    "The rules changed meanwhile",
    "The rules changed after you signed. Sign the newer `typedData`, then send the same request with it.",
  ),
  order_used: define(
    409,
    "Order already used",
    "This order was carried out before. Send the request without `authorization` to get a new order.",
  ),
  email_not_available: define(
    409,
    "No e-mail here",
    "This service is not set up to send e-mail (SMTP_URL). Use a webhook, or ask the operator.",
  ),
  push_not_available: define(
    409,
    "No push here",
    "This service is not set up to send notifications to devices (VAPID_KEYS). Use e-mail or a webhook, or ask the operator.",
  ),
  push_quota_exceeded: define(
    409,
    "Too many devices",
    "Remove a device you no longer use, then retry.",
  ),
  denied_payee_quota_exceeded: define(
    409,
    "Too many denied payees",
    "Remove one that you may pay again, then retry.",
  ),
  denied_by_owner: define(
    409,
    "You never pay this payee",
    "Remove it from your denied payees first, which you sign.",
  ),
  payout_address_missing: define(
    409,
    "No payout address",
    "Name the address to which you withdraw, in the settings.",
  ),
  passkeys_not_available: define(
    409,
    "No passkeys here",
    "Passkeys belong to a domain, and the address of this service is a number. Sign in with a wallet.",
  ),
  passkey_known: define(
    409,
    "Passkey known already",
    "Sign in with this passkey, or make a new one.",
  ),
  too_many_filters: define(
    409,
    "Too many saved filters",
    "An owner may have 50 saved filters. Remove one first.",
  ),
  task_exists: define(
    409,
    "The task exists with other terms",
    "Open a task with another id, or use this one as it is.",
  ),
  too_many_tasks: define(
    409,
    "Too many open tasks",
    "An agent may have 1,000 open tasks. Close one first.",
  ),
  conflict: define(409, "Conflict", "The resource changed or exists already. Reload and retry."),

  request_timeout: define(
    408,
    "Request took too long",
    "Send the whole request without pauses.",
    true,
  ),
  body_too_large: define(413, "Body too large", "Send at most 256 KiB."),
  unsupported_media_type: define(
    415,
    "Unsupported media type",
    "Send `Content-Type: application/json`.",
  ),

  host_not_allowed: define(
    421,
    "Not this host",
    "Call the service by its own name: localhost, or the host of PUBLIC_URL.",
  ),

  validation_failed: define(422, "Validation failed", "Correct the fields named in `errors`."),
  invalid_amount: define(
    422,
    "Invalid amount",
    'Amounts are decimal strings such as "1.50": at most 6 decimals, greater than zero.',
  ),
  invalid_address: define(
    422,
    "Invalid address",
    "Use a 20-byte 0x address. In mixed case its checksum must be right.",
  ),
  idempotency_key_reused: define(
    422,
    "Idempotency-Key reused",
    "This key was used with another body. Use a new key for a new request.",
  ),
  unsupported_payment_requirements: define(
    422,
    "Payment terms not supported",
    "The seller accepts no scheme, network and asset this wallet can pay.",
  ),
  refund_refused: define(
    422,
    "The token would refuse this refund",
    "`reason` says why. Nothing was sent.",
  ),
  signature_expired: define(422, "Signature expired", "Prepare and sign a new order."),
  too_much_to_read: define(
    422,
    "Too much to read at once",
    "Choose a shorter time, one agent, or fewer words.",
  ),

  fetch_capacity: define(
    429,
    "Too many fetches at once",
    "Wait `Retry-After` seconds and repeat. Nothing was paid. `scope` says whether the agent, its owner or the service is at its limit.",
    true,
  ),
  fetch_quota_exceeded: define(
    429,
    "Too many kept answers for this agent",
    "Paid answers are kept for a repeat with their key, up to a quota of bytes in 24 hours. Wait `Retry-After` seconds, or fetch without an Idempotency-Key. Nothing was paid.",
    true,
  ),
  rate_limited: define(429, "Too many requests", "Wait `Retry-After` seconds.", true),

  headers_too_large: define(431, "Headers too large", "Send at most 16 KiB of headers."),

  internal_error: define(500, "Internal error", "This is our fault. Report the request id.", true),

  upstream_error: define(
    502,
    "Target failed",
    "The target could not be reached, or its answer was unusable. Nothing was paid.",
    true,
  ),
  upstream_invalid_402: define(
    502,
    "Target's 402 is not valid",
    "The target asks for payment in a form that is not x402. Nothing was paid.",
  ),
  price_not_announced: define(
    422,
    "Price not announced",
    "This MCP server does not list the price of the tool, and calling a free tool would run it. Nothing was called. Call it with `maxAmount` to set the most you pay.",
  ),
  upstream_redirect: define(
    502,
    "Target redirects",
    "Redirects are not followed. Use the final URL (`thirdParty.headers.location`) if you trust it. Nothing was paid.",
  ),
  paid_upstream_failed: define(
    502,
    "Paid, but not delivered",
    "The payment settled (`txHash`), but the target failed. `thirdParty` is its answer. Do not pay again; contact the seller.",
  ),
  charge_not_known: define(
    502,
    "Not known whether it was charged",
    "The response to a request was lost, and nothing shows whether the seller charged that request. This is the final answer. Do not pay again before you have contacted the seller.",
  ),
  settlement_failed: define(
    502,
    "Settlement failed",
    "The payment was not made: its authorization can no longer be used, so the budget is free again; what a voucher of a payment channel allows still counts as spent. `retryable` is false where the seller refused the payment itself.",
    true,
  ),

  chain_unavailable: define(
    503,
    "Chain unavailable",
    "The chain cannot be reached, costs too much now, or accepts no transactions. Nothing was signed. Retry later.",
    true,
  ),
  policy_not_signed: define(
    503,
    "Not covered by the owner's signature",
    "Stored rules do not match the owner's signature; payment blocked. Nothing was signed. The owner and the operator were notified. Do not retry.",
  ),
  policy_version_unknown: define(
    503,
    "Changed by a newer release",
    "A newer release of this service last changed the agent's rules, and this release does not know all of them. Nothing was signed. Retry when the newer release serves.",
    true,
  ),
  keys_unavailable: define(
    503,
    "Keys unavailable",
    "The key store cannot be reached, or is too busy. Nothing was signed, and nothing stays reserved. Retry later.",
    true,
  ),
  screening_unavailable: define(
    503,
    "Screening unavailable",
    "The operator screens addresses, which is not possible now. Nothing was signed. Retry later. Withdrawals work meanwhile.",
    true,
  ),
  relayer_unfunded: define(503, "Relayer has no gas", "Nothing was signed. Retry later.", true),
  agent_busy: define(
    503,
    "Agent busy",
    "Too many requests change this agent's budget at once. Nothing was reserved. Wait `Retry-After` seconds.",
    true,
  ),
  service_unavailable: define(
    503,
    "Service unavailable",
    "The database cannot be reached, cannot write or is being upgraded, or the service is stopping. Retry later with the same Idempotency-Key.",
    true,
  ),

  upstream_timeout: define(
    504,
    "Target timed out",
    "The target did not answer in time. See `paid` and `paymentId`.",
    true,
  ),
  payment_status_unknown: define(
    504,
    "Payment status unknown",
    "The payment was signed, and its outcome is not known yet. Repeat the same call, with its Idempotency-Key if it had one, or read `paymentId`.",
    true,
  ),
} as const satisfies Record<string, ErrorDefinition>;

export type ErrorCode = keyof typeof ERRORS;

interface ApiErrorOptions {
  /** The sentence for people; defaults to the title. */
  detail?: string | undefined;
  /** Extra members of the problem object (policy, availableAt, txHash, ...). */
  extra?: Record<string, unknown>;
  headers?: Record<string, string>;
  cause?: unknown;
}

/** An error for the caller. Thrown by routes and plugins, turned into a response by the error handler. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly extra: Record<string, unknown>;
  readonly headers: Record<string, string>;

  constructor(code: ErrorCode, options: ApiErrorOptions = {}) {
    const definition = ERRORS[code];
    super(options.detail ?? `${definition.title}. ${definition.help}`, { cause: options.cause });
    this.name = "ApiError";
    this.code = code;
    this.status = definition.status;
    this.extra = options.extra ?? {};
    this.headers = options.headers ?? {};
  }
}

// Every route with a harmless request and the expected response for the permitted credential. A route without a row
// fails `who-may-call.test.ts`: add a row with its credential and response.
import type { Role } from "../../server/core/teams.ts";
import type { Credential } from "../../server/plugins/http/refusals.ts";

/**
 * Ids that a row's request may use: of an agent created for the row, and of things that belong to the agent and its
 * owner.
 */
export interface Subjects {
  agentId: string;
  keyId: string;
  sessionId: string;
  paymentId: string;
  listingId: string;
  approvalId: string;
  webhookId: string;
  deliveryId: string;
  deviceId: string;
  consentId: string;
  connectionId: string;
  settlementId: string;
  merchantKeyId: string;
  filterId: string;
  budgetId: string;
  walletAddress: string;
}

export interface RouteRow {
  auth: Credential;
  /** The expected `status` or `status code` with the permitted credential. */
  allowed: string;
  /** It concerns a resource of one owner or agent: any other gets 404. */
  isOwned?: true;
  body?: (of: Subjects) => unknown;
  headers?: Record<string, string>;
  /** Replaces the route's own path. */
  path?: string;
  /** The response never ends (server-sent events). */
  isStream?: true;
}

const SHOP = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
const CREDENTIAL = { id: "AAAA", rawId: "AAAA", type: "public-key" };
const NEW_CREDENTIAL = {
  ...CREDENTIAL,
  response: { clientDataJSON: "AAAA", attestationObject: "AAAA" },
};
const ASSERTION = {
  ...CREDENTIAL,
  response: { clientDataJSON: "AAAA", authenticatorData: "AAAA", signature: "AAAA" },
};
const PUBLIC = (allowed = "200"): RouteRow => ({ auth: "public", allowed });
const DAYS = "from=2026-01-01&to=2026-02-01";
const OWNER = (allowed: string, body?: unknown, path?: string): RouteRow => ({
  auth: "owner",
  allowed,
  ...(path === undefined ? {} : { path }),
  ...(body === undefined ? {} : { body: () => body }),
});
const OWNED = (allowed: string, body?: unknown): RouteRow => ({
  ...OWNER(allowed, body),
  isOwned: true,
});

const OPERATOR = (allowed: string, body?: unknown): RouteRow => ({
  ...OWNER(allowed, body),
  auth: "operator",
});
const CONFIRMED = { why: "to see who may", confirmationId: "0123456789abcdef" };

export const ROUTES: Record<string, RouteRow> = {
  // Operators
  "GET /api/operators/overview": OPERATOR("200"),
  "GET /api/operators/differences": OPERATOR("200"),
  "GET /api/operators/accounts": OPERATOR("200"),
  "GET /api/operators/merchants": OPERATOR("200"),
  "GET /api/operators/deliveries": OPERATOR("200"),
  "GET /api/operators/record": OPERATOR("200"),
  "GET /api/operators/configuration": OPERATOR("200"),
  "POST /api/operators/checks": OPERATOR("200"),
  "POST /api/operators/differences/close": OPERATOR("422 validation_failed", {
    ...CONFIRMED,
    network: "eip155:1",
    kind: "cancel_unknown",
    key: "a",
  }),
  "POST /api/operators/read-again": OPERATOR("422 validation_failed", {
    ...CONFIRMED,
    network: "eip155:1",
    fromBlock: "1",
  }),

  // E-mail
  "GET /api/email": OWNER("200"),
  "PUT /api/email": OWNER("409 email_not_available", { address: "owner@mail.example" }),
  "DELETE /api/email": OWNER("200"),
  "POST /api/email/confirm": OWNER("404 not_found", { token: "purser_ec_x" }),
  "GET /api/email/unsubscribe": { ...PUBLIC("303"), path: "/api/email/unsubscribe?token=x" },
  "POST /api/email/unsubscribe": {
    ...PUBLIC("404 not_found"),
    path: "/api/email/unsubscribe?token=x",
  },

  // Meta
  "GET /api/health": PUBLIC(),
  "GET /api/ready": PUBLIC(),
  "GET /api/info": PUBLIC(),
  "GET /api/errors": PUBLIC(),
  "GET /metrics": PUBLIC("404 not_found"),
  "GET /openapi.json": PUBLIC(),
  "GET /docs": PUBLIC("308"),
  "GET /docs/json": PUBLIC("308"),
  "GET /docs/yaml": PUBLIC("308"),
  "GET /docs/*": { ...PUBLIC(), path: "/docs/" },
  "GET /skill.md": PUBLIC(),
  "GET /llms.txt": PUBLIC(),
  "GET /api/tools/openai": PUBLIC(),
  "GET /api/tools/anthropic": PUBLIC(),

  // Session
  "GET /api/auth/nonce": PUBLIC(),
  "POST /api/auth/verify": {
    ...PUBLIC("401 invalid_signature"),
    body: () => ({ message: "no sign-in message", signature: "0x" }),
  },
  "GET /api/auth/passkey/register-options": PUBLIC(),
  "POST /api/auth/passkey/register": {
    ...PUBLIC("401 invalid_signature"),
    body: () => ({ nonce: "not-issued-here", name: "Phone", credential: NEW_CREDENTIAL }),
  },
  "GET /api/auth/passkey/sign-in-options": PUBLIC(),
  "POST /api/auth/passkey/sign-in": {
    ...PUBLIC("401 invalid_signature"),
    body: () => ({ nonce: "not-issued-here", credential: ASSERTION }),
  },
  "GET /api/auth/session": OWNER("200"),
  "POST /api/auth/logout": OWNER("200"),
  "GET /api/auth/sessions": OWNER("200"),
  "DELETE /api/auth/sessions/:id": OWNED("200"),
  "GET /api/audit": OWNER("200"),
  "GET /api/audit/export": OWNER("200"),
  "POST /api/owner/stop": OWNER("200"),
  "POST /api/owner/resume": OWNER("200", {}),
  "GET /api/owner/denied-payees": OWNER("200"),
  "POST /api/owner/denied-payees": OWNER("200", { site: "https://shop.example" }),
  "POST /api/owner/denied-payees/remove": OWNER("200", { site: "https://other.example" }),
  "GET /api/budgets": OWNER("200"),
  "POST /api/budgets": OWNER("201", { name: "All", dailyLimit: "5" }),
  "GET /api/budgets/:id": OWNED("200"),
  "GET /api/budgets/:id/agents": OWNED("200"),
  "PATCH /api/budgets/:id": OWNED("200", { name: "Team" }),
  "DELETE /api/budgets/:id": OWNED("403 owner_signature_required", {}),
  "POST /api/agents/tasks": {
    auth: "agent",
    allowed: "201",
    body: () => ({ id: "report", limit: "1" }),
  },
  "GET /api/agents/tasks": { auth: "agent", allowed: "200" },
  "GET /api/tasks/:id": { auth: "agent", allowed: "200", isOwned: true },
  "POST /api/tasks/:id/close": { auth: "agent", allowed: "200", isOwned: true },
  "GET /api/agents/:id/tasks": OWNED("200"),
  "GET /api/recovery": OWNER("200"),
  "PUT /api/recovery/second": OWNER("403 owner_signature_required", { address: SHOP }),
  "POST /api/recovery/move": OWNER("409 conflict", {}),
  "GET /api/passkeys": OWNER("200"),
  "GET /api/passkeys/options": OWNER("200"),
  "POST /api/passkeys": OWNER("401 invalid_signature", {
    nonce: "not-issued-here",
    name: "Phone",
    credential: NEW_CREDENTIAL,
  }),
  "PUT /api/passkeys": OWNER("403 owner_signature_required", { ids: [] }),
  // Those who may call it have a wallet.
  "GET /api/payout": OWNER("409 conflict"),
  "PUT /api/payout": OWNER("409 conflict", { address: SHOP }),
  "POST /api/teams": OWNER("403 owner_signature_required", { name: "Acme", memberName: "Ada" }),
  // Those who may call them act for no team.
  "GET /api/team": OWNER("409 conflict"),
  "PUT /api/team/members": OWNER("409 conflict", {
    name: "Acme",
    threshold: 1,
    approvalAbove: "0",
    members: [{ name: "Ada", address: SHOP, role: "admin" }],
  }),
  "POST /api/auth/act-for": OWNER("200", { owner: null }),
  "GET /api/waiting-orders": OWNER("200"),
  "GET /api/waiting-orders/:id": OWNER("404 not_found"),
  "POST /api/waiting-orders/:id/sign": OWNER("404 not_found", { signature: "0x00" }),
  "DELETE /api/waiting-orders/:id": OWNER("404 not_found"),
  "GET /api/owner/balance": OWNER("200"),

  // Agents of an owner
  "GET /api/agents": OWNER("200"),
  "POST /api/agents": OWNER("403 owner_signature_required", {
    name: "a",
    dailyLimit: "1",
    allowlist: [],
  }),
  "GET /api/agents/:id": OWNED("200"),
  "PATCH /api/agents/:id": OWNED("200", { name: "b" }),
  "POST /api/agents/:id/archive": OWNED("200"),
  "PUT /api/agents/:id/allowlist": OWNED("403 owner_signature_required", { allowlist: [SHOP] }),
  "POST /api/agents/:id/allowlist": OWNED("403 owner_signature_required", { address: SHOP }),
  "DELETE /api/agents/:id/allowlist/:address": OWNED("404 not_found"),
  "GET /api/agents/:id/keys": OWNED("200"),
  "POST /api/agents/:id/keys": OWNED("403 owner_signature_required", {}),
  "POST /api/agents/:id/keys/:keyId/rotate": OWNED("403 owner_signature_required", {}),
  "DELETE /api/agents/:id/keys/:keyId": OWNED("200"),
  "GET /api/agents/:id/audit": OWNED("200"),
  "GET /api/agents/:id/payments": OWNED("200"),
  "GET /api/agents/:id/payments/:paymentId": OWNED("200"),
  "GET /api/agents/:id/channels": OWNED("200"),
  "POST /api/agents/:id/channels/close": OWNED("200"),
  "POST /api/agents/:id/channels/:channelId/close": OWNED("404 not_found"),
  "POST /api/agents/:id/withdrawals/prepare": OWNED("402 insufficient_funds", { amount: "1" }),
  "POST /api/agents/:id/withdrawals": {
    ...OWNED("401 invalid_signature"),
    body: ({ walletAddress }) => ({
      order: {
        wallet: walletAddress,
        to: SHOP,
        asset: "0x3600000000000000000000000000000000000000",
        amount: "1",
        nonce: `0x${"1".repeat(64)}`,
        deadline: String(Math.floor(Date.now() / 1000) + 600),
      },
      signature: `0x${"11".repeat(65)}`,
    }),
  },
  "POST /api/agents/:id/allowlist/lookup": OWNED("403 url_blocked", { url: "http://10.0.0.1/" }),
  "POST /api/allowlist/lookup": OWNER("403 url_blocked", { url: "http://10.0.0.1/" }),
  "POST /api/agents/:id/try": OWNED("403 url_blocked", { url: "http://10.0.0.1/" }),
  "GET /api/approvals": OWNER("200"),
  "GET /api/approvals/:id": OWNED("200"),
  "POST /api/approvals/:id/approve": OWNED("403 owner_signature_required", {}),
  "POST /api/approvals/:id/decline": OWNED("200"),
  "GET /api/notifications": OWNER("200"),
  "POST /api/notifications/read": OWNER("200", {}),
  "GET /api/notifications/push": OWNER("200"),
  "POST /api/notifications/push": OWNER("409 push_not_available", {
    endpoint: "https://push.example/1",
    keys: { p256dh: "B".repeat(87), auth: "B".repeat(22) },
  }),
  "PATCH /api/notifications/push/:id": OWNED("200", { types: ["approval.requested"] }),
  "DELETE /api/notifications/push/:id": OWNED("200"),
  "POST /api/notifications/push/:id/test": OWNED("409 push_not_available"),
  "GET /api/webhooks": OWNER("200"),
  "POST /api/webhooks": OWNER("201", { url: "https://example.com/hook", types: ["*"] }),
  "PATCH /api/webhooks/:id": OWNED("200", { description: "mine" }),
  "DELETE /api/webhooks/:id": OWNED("200"),
  "POST /api/webhooks/:id/rotate-secret": OWNED("200", { graceHours: 0 }),
  "POST /api/webhooks/:id/test": OWNED("202"),
  "GET /api/webhooks/:id/deliveries": OWNED("200"),
  "POST /api/webhooks/:id/deliveries/:deliveryId/resend": OWNED("202"),
  "GET /api/overview": OWNER("200"),
  "GET /api/payments": OWNER("200"),
  "GET /api/spending": OWNER("200", undefined, "/api/spending?by=payee"),
  "GET /api/spending/filters": OWNER("200"),
  "POST /api/spending/filters": OWNER("200", { name: "a", filter: {} }),
  "DELETE /api/spending/filters/:id": OWNED("200"),
  "GET /api/exports/movements.csv": OWNER("200", undefined, `/api/exports/movements.csv?${DAYS}`),
  "GET /api/exports/ledger.beancount": OWNER(
    "200",
    undefined,
    `/api/exports/ledger.beancount?${DAYS}`,
  ),
  "GET /api/owner/first-steps": OWNER("200"),
  "POST /api/owner/first-steps/hide": OWNER("200"),
  "GET /api/events": { ...OWNER("200"), isStream: true },

  // Agents themselves
  "GET /api/agents/me": { auth: "agent", allowed: "200" },
  "GET /api/agents/me/payments": { auth: "agent", allowed: "200" },
  "GET /api/agents/me/payments/:id": { auth: "agent", allowed: "200", isOwned: true },
  "GET /api/agents/me/payments/:id/answer": {
    auth: "agent",
    allowed: "404 not_found",
    isOwned: true,
  },
  "GET /api/agents/approvals/:id": { auth: "agent", allowed: "200", isOwned: true },
  "POST /api/agents/spend": {
    auth: "agent",
    allowed: "403 recipient_not_allowed",
    body: () => ({ recipient: SHOP, amount: "1" }),
  },
  "POST /api/agents/x402-fetch": {
    auth: "agent",
    allowed: "403 url_blocked",
    body: () => ({ url: "http://10.0.0.1/" }),
  },

  "POST /mcp": {
    auth: "agent",
    allowed: "200",
    headers: { accept: "application/json, text/event-stream" },
    body: () => ({ jsonrpc: "2.0", id: 1, method: "ping" }),
  },
  // OAuth: routes for clients are public, granting is for the owner
  "GET /.well-known/oauth-protected-resource": PUBLIC(),
  "GET /.well-known/oauth-protected-resource/mcp": PUBLIC(),
  "GET /.well-known/oauth-authorization-server": PUBLIC(),
  "GET /.well-known/webauthn": PUBLIC(),
  "GET /.well-known/x402": PUBLIC(),
  "GET /.well-known/oauth-authorization-server/mcp": PUBLIC(),
  "POST /oauth/register": {
    ...PUBLIC("201"),
    body: () => ({ redirect_uris: ["http://localhost/callback"] }),
  },
  "POST /oauth/token": { ...PUBLIC("400"), body: () => ({}) },
  "POST /oauth/revoke": { ...PUBLIC("400"), body: () => ({}) },
  "POST /api/oauth/requests": OWNER("422 program_refused", {}),
  "POST /api/oauth/requests/:id/allow": {
    ...OWNED("403 owner_signature_required"),
    body: ({ agentId }) => ({ agentId }),
  },
  "POST /api/oauth/requests/:id/deny": OWNED("200"),
  "GET /api/agents/:id/connections": OWNED("200"),
  "DELETE /api/agents/:id/connections/:connectionId": OWNED("200"),

  "GET /mcp": { auth: "agent", allowed: "405 method_not_allowed" },
  "DELETE /mcp": { auth: "agent", allowed: "405 method_not_allowed" },

  // Marketplace
  "GET /api/agents/me/fetches": { auth: "agent", allowed: "200" },
  "GET /api/agents/:id/fetches": OWNED("200"),
  "GET /api/listings": PUBLIC(),
  "GET /api/listings/suggested": PUBLIC(),
  "GET /api/listings/:id": PUBLIC(),
  "POST /api/listings/probe": OWNER("403 url_blocked", { url: "http://10.0.0.1/" }),
  "POST /api/listings": OWNER("403 url_blocked", {
    url: "http://10.0.0.1/",
    name: "a",
    category: "data",
  }),
  "PATCH /api/listings/:id": OWNED("200", { name: "b" }),
  "DELETE /api/listings/:id": OWNED("200"),

  // Facilitator
  "POST /api/x402/validate": { ...PUBLIC(), body: () => ({ url: "https://10.0.0.1/" }) },
  "GET /api/x402": PUBLIC(),
  "GET /api/x402/supported": PUBLIC(),
  "GET /api/x402/payments/:id": PUBLIC("404 not_found"),
  "GET /api/x402/discovery/resources": PUBLIC(),
  "GET /api/x402/discovery/search": { ...PUBLIC(), path: "/api/x402/discovery/search?query=x" },
  "GET /api/x402/stats": PUBLIC(),
  "POST /api/x402/verify": { auth: "facilitator", allowed: "200", body: () => ({}) },
  "POST /api/x402/settle": { auth: "facilitator", allowed: "200", body: () => ({}) },

  // Merchants
  "GET /api/merchant": OWNER("200"),
  "GET /api/merchant/products": OWNER("200"),
  "GET /api/merchant/settlements": OWNER("200"),
  "GET /api/merchant/settlements.csv": OWNER("200"),
  "GET /api/merchant/settlements/:id": OWNED("200"),
  "POST /api/merchant/settlements/:id/refund": OWNED("403 owner_signature_required", {}),
  "GET /api/merchant/fees": OWNER("200"),
  "GET /api/merchant/fees/entries": OWNER("200"),
  "GET /api/merchant/fees/entries.csv": OWNER("200"),
  "POST /api/merchant/fees/pay": PUBLIC("422 validation_failed"),
  "POST /api/merchant/settlements/:id/receipt": OWNED("200", {}),
  "GET /api/receipts/:id": PUBLIC("404 not_found"),
  "GET /api/merchant/keys": OWNER("200"),
  "POST /api/merchant/keys": OWNER("201", {}),
  "DELETE /api/merchant/keys/:id": OWNED("200"),

  // Demo and local mode
  "GET /api/arc-stats": PUBLIC("402"),
  "GET /api/arc-blocks": { ...PUBLIC("402"), path: "/api/arc-blocks?from=1" },
  "GET /paywall/pay.js": PUBLIC(),
  "GET /paywall/geist-mono.woff2": PUBLIC(),
  "GET /paywall/geist.woff2": PUBLIC(),
  "GET /paywall/look.css": PUBLIC(),
  "GET /paywall/mark.svg": PUBLIC(),
  "GET /paywall/pay.css": PUBLIC(),
  "POST /api/local/faucet": {
    ...PUBLIC("422 invalid_address"),
    body: () => ({ address: "nobody" }),
  },
  "GET /api/local/info": PUBLIC(),
  "GET /api/local/demo-wallet.js": PUBLIC(),
  "POST /api/local/demo-wallet/sign": {
    ...PUBLIC("422 invalid_address"),
    body: () => ({
      to: "nobody",
      value: "1",
      validAfter: "0",
      validBefore: "1",
      nonce: `0x${"1".repeat(64)}`,
    }),
  },
  "GET /api/sandbox/weather": PUBLIC("402"),
  "GET /api/sandbox/words": PUBLIC("402"),
  "GET /api/sandbox/broken": PUBLIC("402"),
};

/**
 * Every owner's route by the least role that a member of a team needs to call it. own: for people's own accounts only. What an
 * order permits is decided by its signatures besides.
 */
export const TEAM_ROLES: Record<Role | "own", readonly string[]> = {
  viewer: [
    "GET /api/email",
    "GET /api/auth/session",
    "GET /api/auth/sessions",
    "GET /api/audit",
    "GET /api/audit/export",
    "GET /api/owner/denied-payees",
    "GET /api/budgets",
    "GET /api/budgets/:id",
    "GET /api/budgets/:id/agents",
    "GET /api/agents/:id/tasks",
    "GET /api/recovery",
    "GET /api/passkeys",
    "GET /api/passkeys/options",
    "GET /api/payout",
    "GET /api/team",
    "GET /api/waiting-orders",
    "GET /api/waiting-orders/:id",
    "GET /api/owner/balance",
    "GET /api/agents",
    "GET /api/agents/:id",
    "GET /api/agents/:id/keys",
    "GET /api/agents/:id/audit",
    "GET /api/agents/:id/payments",
    "GET /api/agents/:id/payments/:paymentId",
    "GET /api/agents/:id/channels",
    "GET /api/approvals",
    "GET /api/approvals/:id",
    "GET /api/notifications",
    "GET /api/notifications/push",
    "GET /api/webhooks",
    "GET /api/webhooks/:id/deliveries",
    "GET /api/overview",
    "GET /api/payments",
    "GET /api/spending",
    "GET /api/spending/filters",
    "GET /api/exports/movements.csv",
    "GET /api/exports/ledger.beancount",
    "GET /api/owner/first-steps",
    "GET /api/events",
    "GET /api/agents/:id/connections",
    "GET /api/agents/:id/fetches",
    "GET /api/merchant",
    "GET /api/merchant/products",
    "GET /api/merchant/settlements",
    "GET /api/merchant/settlements.csv",
    "GET /api/merchant/settlements/:id",
    "GET /api/merchant/fees",
    "GET /api/merchant/fees/entries",
    "GET /api/merchant/fees/entries.csv",
    "GET /api/merchant/keys",
    "POST /api/auth/logout",
    "POST /api/auth/act-for",
  ],
  approver: [
    "POST /api/owner/stop",
    "POST /api/owner/denied-payees",
    "POST /api/recovery/move",
    "POST /api/waiting-orders/:id/sign",
    "DELETE /api/waiting-orders/:id",
    "PATCH /api/agents/:id",
    "POST /api/agents/:id/archive",
    "PUT /api/agents/:id/allowlist",
    "POST /api/agents/:id/allowlist",
    "DELETE /api/agents/:id/allowlist/:address",
    "DELETE /api/agents/:id/keys/:keyId",
    "POST /api/agents/:id/channels/close",
    "POST /api/agents/:id/channels/:channelId/close",
    "POST /api/agents/:id/withdrawals/prepare",
    "POST /api/agents/:id/withdrawals",
    "POST /api/approvals/:id/approve",
    "POST /api/approvals/:id/decline",
    "DELETE /api/notifications/push/:id",
    "DELETE /api/agents/:id/connections/:connectionId",
    "DELETE /api/merchant/keys/:id",
    "POST /api/budgets",
    "PATCH /api/budgets/:id",
  ],
  admin: [
    "PUT /api/email",
    "DELETE /api/email",
    "POST /api/email/confirm",
    "POST /api/owner/resume",
    "POST /api/owner/denied-payees/remove",
    "DELETE /api/budgets/:id",
    "PUT /api/recovery/second",
    "PUT /api/payout",
    "PUT /api/team/members",
    "POST /api/agents",
    "POST /api/agents/:id/keys",
    "POST /api/agents/:id/keys/:keyId/rotate",
    "POST /api/agents/:id/allowlist/lookup",
    "POST /api/allowlist/lookup",
    "POST /api/agents/:id/try",
    "POST /api/notifications/read",
    "PATCH /api/notifications/push/:id",
    "POST /api/notifications/push/:id/test",
    "POST /api/webhooks",
    "PATCH /api/webhooks/:id",
    "DELETE /api/webhooks/:id",
    "POST /api/webhooks/:id/rotate-secret",
    "POST /api/webhooks/:id/test",
    "POST /api/webhooks/:id/deliveries/:deliveryId/resend",
    "POST /api/spending/filters",
    "DELETE /api/spending/filters/:id",
    "POST /api/owner/first-steps/hide",
    "POST /api/oauth/requests",
    "POST /api/oauth/requests/:id/allow",
    "POST /api/oauth/requests/:id/deny",
    "POST /api/listings/probe",
    "POST /api/listings",
    "PATCH /api/listings/:id",
    "DELETE /api/listings/:id",
    "POST /api/merchant/settlements/:id/refund",
    "POST /api/merchant/settlements/:id/receipt",
    "POST /api/merchant/keys",
  ],
  own: [
    "DELETE /api/auth/sessions/:id",
    "POST /api/passkeys",
    "PUT /api/passkeys",
    "POST /api/teams",
    "POST /api/notifications/push",
  ],
};

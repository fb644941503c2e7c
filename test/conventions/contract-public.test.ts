// Goal: a client written only from the published contract, field by field, works with the public parts:
// facilitator, demo, service state, documents, faucet.
import { decodePaymentRequiredHeader } from "@x402/core/http";
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { post, signedPayment } from "../facilitator/payments.ts";
import { testApp } from "../helpers/app.ts";
import {
  address,
  atomic,
  count,
  exactly,
  fields,
  flag,
  hash,
  holds,
  listOf,
  network,
  text,
  time,
} from "../helpers/contract.ts";
import { reaching } from "../marketplace/seller.ts";

const METRICS_TOKEN = "metrics-token-of-this-test";
const local = reaching();
const { app, chain } = await testApp(t, { ...local, env: { ...local.env, METRICS_TOKEN } });
const payer = privateKeyToAccount(generatePrivateKey());
const payTo = privateKeyToAccount(generatePrivateKey()).address;
await chain.mint(payer.address, 1_000_000n);
const get = async (url: string) => app.inject(url);

t.test("verify", async (t) => {
  const body = await signedPayment({ chain, payer, payTo });
  t.same(await post(app, "verify", body), { isValid: true, payer: payer.address, amount: "1000" });
  const bent = await signedPayment({ chain, payer, payTo, value: "999" });
  holds(
    t,
    await post(app, "verify", bent),
    fields({
      isValid: exactly(false),
      error: text,
      invalidReason: text,
      invalidMessage: text,
      payer: exactly(payer.address),
    }),
    "not valid",
  );
});

t.test("settle, once", async (t) => {
  const body = await signedPayment({ chain, payer, payTo });
  const settled = await post(app, "settle", body, { "idempotency-key": "one" });
  holds(
    t,
    settled,
    fields({
      success: exactly(true),
      txHash: hash,
      transaction: exactly(String(settled["txHash"])),
      network,
      payer: exactly(payer.address),
      amount: exactly("1000"),
      paymentId: text,
    }),
    "settled",
  );
  t.same(await post(app, "settle", body, { "idempotency-key": "one" }), settled, "the same caller");
  const others: Record<string, string>[] = [{}, { "idempotency-key": "two" }];
  for (const headers of others)
    holds(
      t,
      await post(app, "settle", body, headers),
      fields({
        success: exactly(false),
        errorReason: exactly("duplicate_settlement"),
        errorMessage: text,
        error: text,
        transaction: exactly(String(settled["txHash"])),
        txHash: hash,
        network,
        payer: exactly(payer.address),
      }),
      "other callers",
    );
  const state = await get(`/api/x402/payments/${String(settled["paymentId"])}`);
  const expected = fields({ status: exactly("settled"), txHash: hash });
  holds(t, state.json(), expected, "GET /api/x402/payments/:id");
});

t.test("the facilitator's capabilities and resources", async (t) => {
  const common = { x402Version: count, network: text };
  const kinds = {
    exact: fields({ ...common, scheme: exactly("exact") }),
    upto: fields({
      ...common,
      scheme: exactly("upto"),
      extra: fields({ facilitatorAddress: address }),
    }),
    "batch-settlement": fields({ ...common, scheme: exactly("batch-settlement") }),
  };
  const supported = (await get("/api/x402/supported")).json();
  holds(t, supported, fields({ extensions: listOf(text) }), "supported");
  for (const kind of supported.kinds as { scheme: keyof typeof kinds }[])
    holds(t, kind, kinds[kind.scheme], `supported ${kind.scheme}`);
  for (const [family, signers] of Object.entries(supported.signers as object)) {
    t.match(family, /^eip155:/);
    holds(t, signers, listOf(address), "signers");
  }
  const resource = fields({
    resource: text,
    type: exactly("http"),
    x402Version: count,
    accepts: listOf(fields({ scheme: text, network, payTo: address })),
    lastUpdated: time,
  });
  const pagination = fields({ limit: count, offset: count, total: count });
  const discovery = fields({ x402Version: count, items: listOf(resource), pagination });
  holds(t, (await get("/api/x402/discovery/resources")).json(), discovery, "discovery");
});

t.test("the demo costs a thousandth", async (t) => {
  const unpaid = await get("/api/arc-stats");
  t.equal(unpaid.statusCode, 402);
  t.equal(unpaid.headers["cache-control"], "no-store");
  const required = decodePaymentRequiredHeader(String(unpaid.headers["payment-required"]));
  t.match(required, { x402Version: 2, accepts: [{ scheme: "exact", amount: "1000" }] });
  const accepted = fields({ maxAmountRequired: atomic, asset: address, payTo: address });
  const old = fields({ x402Version: exactly(1), error: text, accepts: listOf(accepted) });
  holds(t, unpaid.json(), old, "the body of version 1");
  const page = await app.inject({ url: "/api/arc-stats", headers: { accept: "text/html" } });
  t.match(page.headers["content-type"], /^text\/html/);
});

t.test("state and documents", async (t) => {
  holds(t, (await get("/api/health")).json(), fields({ status: exactly("ok") }), "health");
  const ready = await get("/api/ready");
  t.equal(ready.statusCode, 200);
  const parts = ready.json<{ parts: Record<string, unknown> }>().parts;
  for (const part of ["database", "migrations", "chain:eip155:5042002", "relayer:eip155:5042002"])
    holds(t, parts[part], fields({ ok: flag, detail: text }), part);
  const authorization = `Bearer ${METRICS_TOKEN}`;
  t.match((await app.inject({ url: "/metrics", headers: { authorization } })).body, /^# HELP /m);
  const openapi = (await get("/openapi.json")).json();
  t.match(openapi.openapi, /^3\./);
  for (const [url, type] of [
    ["/docs/", /^text\/html/],
    ["/skill.md", /^text\/markdown/],
    ["/llms.txt", /^text\/plain/],
  ] as const) {
    const document = await get(url);
    t.equal(document.statusCode, 200, url);
    t.match(document.headers["content-type"], type, url);
    t.match(document.headers["x-request-id"], /./, url);
  }
});

/** Copied from the contract: changing the status of a code breaks clients. */
const STATUSES: Record<number, string[]> = {
  400: ["invalid_json", "idempotency_key_invalid"],
  401: [
    "missing_api_key",
    "invalid_api_key",
    "api_key_revoked",
    "api_key_expired",
    "session_required",
    "invalid_signature",
  ],
  402: ["insufficient_funds"],
  403: [
    "daily_limit_exceeded",
    "weekly_limit_exceeded",
    "monthly_limit_exceeded",
    "payment_rate_exceeded",
    "payee_limit_exceeded",
    "payee_per_payment_limit_exceeded",
    "payee_expired",
    "channel_not_allowed",
    "channel_limit_exceeded",
    "payee_channel_limit_exceeded",
    "per_payment_limit_exceeded",
    "recipient_not_allowed",
    "site_payee_changed",
    "payee_bound_to_site",
    "agent_paused",
    "agent_expired",
    "price_exceeds_max",
    "listing_mismatch",
    "url_blocked",
    "origin_not_allowed",
    "challenge_already_used",
    "channel_distrusted",
  ],
  404: ["not_found"],
  409: [
    "idempotency_in_progress",
    "duplicate_settlement",
    "withdrawal_replayed",
    "agent_has_funds",
    "listing_not_active",
  ],
  413: ["body_too_large"],
  415: ["unsupported_media_type"],
  422: [
    "validation_failed",
    "invalid_amount",
    "invalid_address",
    "idempotency_key_reused",
    "unsupported_payment_requirements",
    "signature_expired",
  ],
  429: ["rate_limited"],
  502: [
    "upstream_error",
    "upstream_invalid_402",
    "upstream_redirect",
    "paid_upstream_failed",
    "settlement_failed",
  ],
  503: ["chain_unavailable", "relayer_unfunded"],
  504: ["upstream_timeout", "payment_status_unknown"],
};

t.test("every code has the status of the contract's table", async (t) => {
  const { items } = (await get("/api/errors")).json<{
    items: { code: string; status: number }[];
  }>();
  const listed = (await get("/openapi.json")).json()["x-error-codes"] as typeof items;
  for (const catalogue of [items, listed]) {
    const statusOf = new Map(catalogue.map(({ code, status }) => [code, status]));
    for (const [status, codes] of Object.entries(STATUSES))
      for (const code of codes) t.equal(statusOf.get(code), Number(status), code);
  }
});

t.test("the local faucet", async (t) => {
  const answer = await app.inject({
    method: "POST",
    url: "/api/local/faucet",
    payload: { address: payer.address, amount: "1.5" },
  });
  t.equal(answer.statusCode, 200);
  holds(t, answer.json(), fields({ success: exactly(true), txHash: hash }), "faucet");
});

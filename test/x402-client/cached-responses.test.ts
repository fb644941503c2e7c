// Goal: an agent does not pay twice for the same data: a paid answer is cached for maxAge, and a site with sign-in-with-x gets the wallet's signature instead.
import type { ServerResponse } from "node:http";
import { paymentMiddleware } from "@x402/express";
import { x402ResourceServer } from "@x402/core/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";
import {
  createSIWxResourceServerExtension,
  declareSIWxExtension,
  InMemorySIWxStorage,
  type SIWxHookEvent,
} from "@x402/extensions/sign-in-with-x";
import express from "express";
import t, { type Test } from "tap";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { freePort } from "../../server/local/free-port.ts";
import { CACHED_BYTES, CacheLookup } from "../../server/plugins/x402-client/cache.ts";
import { prepare } from "../../server/plugins/x402-client/request.ts";
import { callApi } from "../helpers/call.ts";
import { asOwner, createAgent } from "../helpers/owner.ts";
import { testApp } from "../helpers/app.ts";
import { until } from "../helpers/until.ts";
import { assertLedgerIsChain, market, PAYEE, type Answered, type Market } from "./market.ts";
import { ourFacilitator } from "./stock-sellers.ts";

const FOUR = ["a", "b", "c", "d"];

t.test("a paid GET is answered from the cache for maxAge", async (t) => {
  const made = await market(t);
  const { seller, database, chain } = made;
  const { url } = seller;
  const json = '{"nth":1, "big":12345678901234567890}';
  let sold = 0;
  seller.script = {
    onProof: async ({ response, proof }) => {
      sold += 1;
      const transaction = await seller.settle(proof);
      response
        .writeHead(200, {
          "content-type": "application/json",
          etag: '"1"',
          ...seller.receipt({ transaction }),
        })
        .end(json);
    },
  };
  const cached = (body: Record<string, unknown> = {}, headers = {}) =>
    made.fetch({ url, maxAge: 60, ...body }, headers);
  const first = await cached();
  t.match(first, { status: 200, body: { paid: true, cached: undefined } });

  await t.test("and costs nothing", async (t) => {
    const requests = seller.unpaidRequests.length;
    const again = await cached({}, { "idempotency-key": "again" });
    t.match(again, {
      status: 200,
      body: {
        paid: false,
        amountPaid: "0",
        txHash: null,
        paymentId: null,
        cached: true,
        cachedAt: /^20/,
        cachedPaymentId: first.body["paymentId"],
        data: { nth: 1 },
        status: 200,
        delivered: true,
        headers: { etag: '"1"' },
        source: url,
      },
    });
    t.ok((again.body["ageSeconds"] as number) < 30);
    t.ok(again.text.includes(`"data":${json}`), "unchanged");
    t.same([seller.unpaidRequests.length, sold], [requests, 1], "the seller was not called");
    t.match((await cached({}, { "idempotency-key": "again" })).body, { cached: true });
  });

  await t.test("not for longer, not without maxAge, and not for another request", async (t) => {
    await database.pool.query(
      "UPDATE cached_answers SET cached_at = now() - interval '30 seconds'",
    );
    t.match((await cached({ maxAge: 31 })).body, { cached: true, ageSeconds: 30 });
    t.match((await cached({ maxAge: 29 })).body, { paid: true });
    t.match((await made.fetch({ url })).body, { paid: true });
    t.match((await cached({ headers: { accept: "text/csv" } })).body, { paid: true });
    t.match((await cached({ url: `${url}&more=1` })).body, { paid: true });
    t.equal(sold, 5);
    t.match(
      (await cached({ headers: { cookie: "not sent" } })).body,
      { cached: true },
      "a header that is not sent does not matter",
    );
    for (const body of [{ method: "POST" }, { maxAge: 0 }, { maxAge: 86_401 }, { maxAge: 1.5 }])
      t.match(await cached(body), { status: 422 }, JSON.stringify(body));
  });

  await t.test("never to another agent", async (t) => {
    const other = await createAgent(made, made.owner, { allowlist: [PAYEE] });
    await chain.mint(other.walletAddress, 1_000_000n);
    const answer = await callApi(made.app, other, "POST", "/api/agents/x402-fetch", {
      url,
      maxAge: 60,
    });
    t.match(answer.json(), { paid: true, cached: undefined });
  });

  await t.test("of many at once one pays, also on another replica", async (t) => {
    const replica = await testApp(t, {
      database,
      chain,
      configure: (config) => config.fetchPrivateOrigins.push(seller.origin),
    });
    const page = `${seller.origin}/many`;
    const before = sold;
    // Each has its own key: without one they would join the first call and return its answer for that reason.
    const own = (name: string) => ({ "idempotency-key": `many-${name}` });
    const there = (name: string) =>
      replica.app.inject({
        method: "POST",
        url: "/api/agents/x402-fetch",
        headers: { ...made.agent.headers, ...own(name) },
        payload: JSON.stringify({ url: page, maxAge: 60 }),
      });
    const answers = await Promise.all([
      ...FOUR.map(async (name) => (await cached({ url: page }, own(`here-${name}`))).body),
      ...FOUR.map(async (name) => (await there(`there-${name}`)).json<Answered["body"]>()),
    ]);
    t.equal(answers.filter(({ paid }) => paid === true).length, 1);
    t.equal(answers.filter((body) => body["cached"] === true).length, 7);
    t.equal(sold - before, 1);
  });

  await t.test("a failed, free or incomplete response is not cached", async (t) => {
    const page = `${seller.origin}/failing`;
    const { script } = seller;
    seller.script = { onProof: ({ response }) => void response.writeHead(500).end() };
    t.match(await cached({ url: page }), { status: 502 });
    seller.script = {
      onProof: async ({ response, proof }) => {
        await seller.settle(proof);
        response.writeHead(200, { "content-length": "10" }).write("half");
        setTimeout(() => response.destroy(), 50);
      },
    };
    t.match((await cached({ url: page })).body, { paid: true, truncated: true });
    seller.script = { onUnpaid: ({ response }) => void response.end("free") };
    t.match((await cached({ url: page })).body, { paid: false, cached: undefined });
    seller.script = script;
    t.match((await cached({ url: page })).body, { paid: true });
    t.match((await cached({ url: page })).body, { cached: true });
    const { rows } = await database.pool.query(
      "SELECT 1 FROM cached_answers WHERE claim IS NOT NULL",
    );
    t.equal(rows.length, 0);
  });

  await t.test("a claim lasts as long as its holder may take", async (t) => {
    const { script } = seller;
    let lasts = 0;
    seller.script = {
      onUnpaid: async ({ response }) => {
        const { rows } = await database.pool.query<{ seconds: number }>(
          "SELECT extract(epoch FROM max(claimed_until) - clock_timestamp())::float8 AS seconds FROM cached_answers",
        );
        lasts = rows[0]?.seconds ?? 0;
        response.end("free");
      },
    };
    await cached({ url: `${seller.origin}/slow`, timeoutMs: 100_000 });
    t.ok(lasts > 3 * 100, `three responses of the target, and the rest: ${lasts} s`);
    seller.script = script;
  });

  await t.test("a claim of a process that died ends", async (t) => {
    const page = `${seller.origin}/died`;
    await cached({ url: page });
    await database.pool.query(
      `UPDATE cached_answers SET answer = NULL, cached_at = NULL, claim = 'x', claimed_until = now() + interval '1 second'
        WHERE cached_at = (SELECT max(cached_at) FROM cached_answers)`,
    );
    t.match((await cached({ url: page })).body, { paid: true });
  });

  await t.test("the holder of a claim does not wait for it", async (t) => {
    const { pool, prisma } = made.app;
    const cacheTurn = new CacheLookup(
      { pool, db: prisma },
      made.agent.id,
      prepare({ url: `${seller.origin}/twice` }, undefined).target,
    );
    // Longer than this file may run.
    const ages = { maxAgeSeconds: 60, claimSeconds: 3_600 };
    t.equal(await cacheTurn.look(ages, async () => undefined), undefined);
    t.equal(await cacheTurn.look(ages, async () => undefined), undefined);
    await cacheTurn.release();
  });

  await t.test("only to an active agent, and only for its allowed sites", async (t) => {
    const change = (body: object) =>
      asOwner(made.app, made.owner, { method: "PATCH", url: `/api/agents/${made.agent.id}`, body });
    t.match((await cached()).body, { cached: true });
    await change({ fetch: "sites" });
    t.match(await cached(), { status: 403, body: { code: "origin_not_allowed" } });
    await change({ fetch: "any" });
    await change({ status: "paused" });
    t.match(await cached(), { status: 403, body: { code: "agent_paused" } });
    await change({ status: "active" });
    t.match((await cached()).body, { cached: true });
    await database.pool.query(
      "UPDATE agents SET expires_at = now() - interval '1 second' WHERE id = $1",
      [made.agent.id],
    );
    t.match(await cached(), { status: 403, body: { code: "agent_expired" } });
    await database.pool.query("UPDATE agents SET expires_at = NULL WHERE id = $1", [made.agent.id]);
  });

  await t.test("up to a quota, and for a day", async (t) => {
    const count = async (): Promise<number> =>
      made.app.prisma.cachedAnswer.count({ where: { agentId: made.agent.id } });
    await database.pool.query("UPDATE cached_answers SET bytes = $1 WHERE agent_id = $2", [
      CACHED_BYTES / 2,
      made.agent.id,
    ]);
    await cached({ url: `${seller.origin}/newest` });
    t.equal(await count(), 2, "the oldest are removed first");
    await database.pool.query("UPDATE cached_answers SET created_at = now() - interval '25 hours'");
    await cached({ url: `${seller.origin}/newer` });
    const deleted = await deleteOldRows(database.pool, made.app.config.retention);
    t.ok((deleted["cachedAnswers"] ?? 0) >= 2);
    t.equal(await count(), 1);
  });

  await assertLedgerIsChain(t, made);
});

/** The stock middleware with its sign-in extension, using our facilitator. */
async function siwxSeller(t: Test, made: Market) {
  const port = await freePort();
  const origin = `http://127.0.0.1:${port}`;
  const events: SIWxHookEvent[] = [];
  const served: string[] = [];
  const storage = new InMemorySIWxStorage();
  const { chain } = made;
  const network = `eip155:${chain.chainId}` as const;
  const resources = new x402ResourceServer(ourFacilitator(made.baseUrl))
    .register(network, new ExactEvmScheme())
    .registerExtension(
      createSIWxResourceServerExtension({
        storage,
        origin,
        onEvent: (event) => void events.push(event),
      }),
    );
  const sold = {
    accepts: {
      scheme: "exact",
      network,
      payTo: PAYEE,
      price: { amount: "1000", asset: chain.usdc, extra: { name: "USDC", version: "2" } },
      maxTimeoutSeconds: 60,
    },
    extensions: declareSIWxExtension({ statement: "Show what you bought", expirationSeconds: 300 }),
  };
  const app = express();
  app.use(
    paymentMiddleware({ "GET /paid": sold, "GET /other": sold, "POST /order": sold }, resources),
  );
  app.use((request, response) => {
    served.push(`${request.method} ${request.path}`);
    response.json({ served: served.length });
  });
  const server = app.listen(port, "127.0.0.1");
  t.teardown(() => void server.close());
  made.config.fetchPrivateOrigins.push(origin);
  return { origin, events, served, storage };
}

t.test("sign-in-with-x is tried first where the wallet has paid", async (t) => {
  const made = await market(t, { listen: true, env: { SETTLE_WAIT_MS: "10000" } });
  const { origin, events, served } = await siwxSeller(t, made);
  const url = `${origin}/paid`;
  const types = (): string[] => events.splice(0).map(({ type }) => type);

  t.match((await made.fetch({ url })).body, {
    paid: true,
    signedIn: undefined,
    data: { served: 1 },
  });
  t.same(types(), ["payment_recorded"], "nothing was signed before the first payment");
  const balance = await made.balanceOf(PAYEE);

  await t.test("the wallet's signature replaces the payment", async (t) => {
    const again = await made.fetch({ url }, { "idempotency-key": "signed" });
    t.match(again, {
      status: 200,
      body: {
        paid: false,
        amountPaid: "0",
        txHash: null,
        signedIn: true,
        note: "Fetched again with the wallet's signature. Nothing was paid.",
        delivered: true,
        data: { served: 2 },
      },
    });
    const listed = await made.app.inject({
      url: "/api/agents/me/fetches",
      headers: made.agent.headers,
    });
    t.match(listed.json(), {
      items: [
        { outcome: "free", signedIn: true, paymentId: null },
        { outcome: "paid", signedIn: false },
      ],
    });
    t.same(types(), ["access_granted"]);
    t.match((await made.fetch({ url }, { "idempotency-key": "signed" })).body, { signedIn: true });
    t.same(types(), ["access_granted"]);
    t.equal(await made.balanceOf(PAYEE), balance);
    t.match((await made.fetch({ url, dryRun: true })).body, { price: "0.001" });
    t.same(types(), [], "a quote signs nothing");
  });

  await t.test("where the signature is refused, it pays", async (t) => {
    t.match((await made.fetch({ url: `${origin}/other` })).body, {
      paid: true,
      signedIn: undefined,
    });
    t.same(types(), ["payment_recorded"]);
    t.equal((await made.balanceOf(PAYEE)) - balance, 1000n);
  });

  await t.test("a POST runs once, and never again with its key", async (t) => {
    const order = { url: `${origin}/order`, method: "POST", body: { n: 1 } };
    t.match((await made.fetch(order)).body, { paid: true });
    const before = served.length;
    const key = { "idempotency-key": "order" };
    t.match((await made.fetch(order, key)).body, { signedIn: true, paid: false });
    t.match(await made.fetch(order, key), { status: 409, body: { code: "answer_not_kept" } });
    t.equal(served.length - before, 1);
    types();
  });

  await t.test("nothing is signed for an agent that may not pay there", async (t) => {
    const change = (body: object) =>
      asOwner(made.app, made.owner, { method: "PATCH", url: `/api/agents/${made.agent.id}`, body });
    await change({ status: "paused" });
    t.match(await made.fetch({ url }), { status: 403, body: { code: "agent_paused" } });
    await change({ status: "active" });
    await asOwner(made.app, made.owner, {
      method: "DELETE",
      url: `/api/agents/${made.agent.id}/allowlist/${PAYEE}`,
      body: {},
    });
    t.match(await made.fetch({ url }), { status: 403, body: { code: "recipient_not_allowed" } });
    t.same(types(), []);
  });
});

t.test("a payment that was recorded and never settled does not allow signing", async (t) => {
  const made = await market(t);
  const { seller } = made;
  const headersSeen: (string | string[] | undefined)[] = [];
  const site = new URL(seller.url);
  const info = () => ({
    domain: site.host,
    uri: seller.url,
    version: "1",
    nonce: "0123456789abcdef",
    issuedAt: new Date().toISOString(),
  });
  let challenge: (over: object) => object = (over) => ({
    info: { ...info(), ...over },
    supportedChains: [{ chainId: `eip155:${made.chain.chainId}`, type: "eip191" }],
    schema: {},
  });
  let over: object = {};
  let broken: ((response: ServerResponse) => void) | undefined;
  seller.script = {
    onUnpaid: ({ request, response }) => {
      headersSeen.push(request.headers["sign-in-with-x"]);
      if (broken && request.headers["sign-in-with-x"] !== undefined) return broken(response);
      const required = {
        x402Version: 2,
        resource: { url: seller.url },
        accepts: [seller.entry()],
        extensions: { "sign-in-with-x": challenge(over) },
      };
      const header = Buffer.from(JSON.stringify(required)).toString("base64");
      response.writeHead(402, { "payment-required": header }).end("{}");
    },
  };
  const signed = async (): Promise<boolean> => {
    headersSeen.length = 0;
    const answer = await made.fetch({ url: seller.url, headers: { "SIGN-IN-WITH-X": "forged" } });
    t.match(answer, {
      status: 200,
      body: { paid: true, omittedHeaders: ["SIGN-IN-WITH-X"] },
      headers: { "idempotent-replayed": undefined },
    });
    return headersSeen.some((header) => header !== undefined);
  };
  t.equal(await signed(), false, "first time");
  t.equal(await signed(), true, "it has paid");
  over = { domain: "bank.example" };
  t.equal(await signed(), false, "another domain");
  over = { uri: "http://bank.example/" };
  t.equal(await signed(), false, "another origin");
  over = {};
  challenge = () => ({ nonsense: true });
  t.equal(await signed(), false, "nonsense");
  challenge = () => ({ info: info(), supportedChains: [{ chainId: "eip155:1", type: "eip191" }] });
  t.equal(await signed(), false, "another chain");
  challenge = () => ({
    info: info(),
    supportedChains: [{ chainId: `eip155:${made.chain.chainId}`, type: "eip191" }],
  });
  t.equal(await signed(), true);
  for (const status of [400, 404, 429, 500, 503]) {
    broken = (response) => void response.writeHead(status).end();
    t.equal(await signed(), true, `paid where its sign-in returns ${status}`);
  }
  broken = (response) => void response.writeHead(302, { location: "/login" }).end();
  t.equal(await signed(), true, "redirects");
  broken = (response) => void response.destroy();
  t.equal(await signed(), true, "or closes the connection");
  broken = () => undefined;
  t.match(await made.fetch({ url: seller.url, timeoutMs: 500 }), { body: { paid: true } });
  broken = (response) => void response.writeHead(500).end();
  t.match(
    await made.fetch({ url: seller.url, method: "POST", body: "1" }),
    { body: { paid: false, status: 500, signedIn: true } },
    "a POST may have run",
  );
  broken = undefined;
  await made.database.pool.query("UPDATE paid_sites SET payment_id = 'pay_other'");
  t.equal(await signed(), false, "a record without its payment");

  await made.database.pool.query("DELETE FROM paid_sites");
  const settling: (() => Promise<unknown>)[] = [];
  const paying = seller.script;
  seller.script = {
    ...paying,
    onProof: ({ response, proof }) => {
      settling.push(() => seller.settle(proof));
      response.writeHead(200).end("data");
    },
  };
  t.match(await made.fetch({ url: seller.url }), { status: 504 }, "delivered, and settled later");
  t.equal(headersSeen.filter(Boolean).length, 0);
  seller.script = paying;
  for (const settle of settling) await settle();
  await until(async () => (await made.lastPayment())?.["status"] === "settled", 20_000);
  t.equal(await signed(), true, "then it counts");
  await assertLedgerIsChain(t, made);
});

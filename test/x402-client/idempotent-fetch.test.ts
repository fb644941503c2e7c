// Goal: a request repeated with its idempotency key never pays twice and gets the same answer: after it ended, while it runs, and after an unknown outcome.
import t from "tap";
import { spendAs } from "../helpers/call.ts";
import { until } from "../helpers/until.ts";
import { asOwner } from "../helpers/owner.ts";
import { untilDead } from "./doomed.ts";
import { assertLedgerIsChain, market, PAYEE } from "./market.ts";

t.test("one key, one payment", async (t) => {
  const made = await market(t, { agent: { perPaymentLimit: "1" } });
  const { seller, agent, app } = made;
  const url = seller.url;
  const withKey = (key: string, body: Record<string, unknown> = {}) =>
    made.fetch({ url, timeoutMs: 1_000, ...body }, { "idempotency-key": key });

  await t.test("after the answer: returned again, without the seller", async (t) => {
    const first = await withKey("after");
    t.equal(first.status, 200);
    t.equal(first.headers["idempotent-replayed"], undefined);
    const requests = seller.unpaidRequests.length + seller.proofs.length;
    const again = await withKey("after");
    t.equal(again.text, first.text);
    t.equal(again.headers["idempotent-replayed"], "true");
    t.equal(seller.unpaidRequests.length + seller.proofs.length, requests);
    t.match(await withKey("after", { maxAmount: "1" }), {
      status: 422,
      body: { code: "idempotency_key_reused" },
    });
    t.match(await withKey(" bad key\u00fc"), {
      status: 400,
      body: { code: "idempotency_key_invalid" },
    });
  });

  await t.test("while it runs: refused, and the first one finishes", async (t) => {
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    let reached: () => void = () => undefined;
    const atSeller = new Promise<void>((resolve) => (reached = resolve));
    seller.script = {
      onProof: async ({ response, proof }) => {
        reached();
        await held;
        await seller.settle(proof);
        response.writeHead(200).end("done");
      },
    };
    const first = withKey("during", { timeoutMs: 20_000 });
    await atSeller;
    const second = await withKey("during", { timeoutMs: 20_000 });
    t.match(second, { status: 409, body: { code: "idempotency_in_progress", paymentId: /^pay_/ } });
    release();
    t.match(await first, { status: 200, body: { paid: true, text: "done" } });
    t.match(await withKey("during", { timeoutMs: 20_000 }), {
      status: 200,
      body: { text: "done" },
    });
    seller.script = {};
  });

  await t.test("many at once: one pays, the others wait or receive its answer", async (t) => {
    const before = await made.balanceOf(PAYEE);
    const answers = await Promise.all(Array.from({ length: 8 }, () => withKey("many")));
    t.ok(answers.some(({ status }) => status === 200));
    for (const { status, body } of answers)
      t.ok(status === 200 || body["code"] === "idempotency_in_progress", JSON.stringify(body));
    t.equal((await made.balanceOf(PAYEE)) - before, 1000n);
  });

  await t.test("a denial is not stored: the same key may succeed later", async (t) => {
    seller.script = { terms: () => seller.entry({ amount: "2000000" }) };
    t.match(await withKey("denied"), {
      status: 403,
      body: { code: "per_payment_limit_exceeded" },
    });
    await asOwner(app, made.owner, {
      method: "PATCH",
      url: `/api/agents/${agent.id}`,
      body: { perPaymentLimit: "2" },
    });
    t.match(await withKey("denied"), { status: 200, body: { amountPaid: "2" } });
    seller.script = {};
  });

  await t.test("unknown at first: the same key returns the outcome", async (t) => {
    seller.script = {
      onProof: ({ response }) =>
        void response
          .writeHead(200, { "content-type": "application/json", etag: '"1"' })
          .end('{"n": 1.0}'),
    };
    const unknown = await withKey("unknown");
    t.match(unknown, {
      status: 504,
      body: {
        code: "payment_status_unknown",
        status: 504,
        data: { n: 1 },
        upstreamStatus: 200,
      },
    });
    const { proofs, unpaidRequests } = seller;
    const seen = [proofs.length, unpaidRequests.length];
    const proof = proofs.at(-1);
    if (proof) await seller.settle(proof);
    const known = await withKey("unknown");
    t.match(known, {
      status: 200,
      body: {
        paid: true,
        data: { n: 1 },
        headers: { etag: '"1"' },
        paymentId: unknown.body["paymentId"],
      },
    });
    t.ok(known.text.includes('"data":{"n": 1.0}'), "unchanged");
    t.equal(known.headers["idempotent-replayed"], "true");
    t.same([proofs.length, unpaidRequests.length], seen, "the seller was not called again");
    t.same((await withKey("unknown")).text, known.text, "returned again unchanged");
    seller.script = {};
  });

  await t.test(
    "if the end cannot be recorded, the same key returns the paid response once the request counts as dead",
    async (t) => {
      const { pool } = made.database;
      await pool.query(
        `CREATE FUNCTION test_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$`,
      );
      await pool.query(
        "CREATE TRIGGER test_refuse BEFORE UPDATE OF delivered ON payments FOR EACH ROW EXECUTE FUNCTION test_refuse()",
      );
      const proofs = seller.proofs.length;
      const failed = await app.inject({
        method: "POST",
        url: "/api/agents/x402-fetch",
        headers: { ...agent.headers, "idempotency-key": "unrecorded" },
        payload: JSON.stringify({ url, timeoutMs: 1_000 }),
      });
      t.equal(failed.statusCode, 500);
      t.equal(seller.proofs.length, proofs + 1);
      await pool.query("DROP FUNCTION test_refuse CASCADE");
      t.match(await withKey("unrecorded"), {
        status: 409,
        body: { code: "idempotency_in_progress" },
      });
      await untilDead(made);
      const again = await withKey("unrecorded");
      t.match(again, { status: 200, body: { paid: true, data: { answer: 42 } } });
      t.equal(again.headers["idempotent-replayed"], "true");
      t.equal(seller.proofs.length, proofs + 1, "the seller was not asked again");
    },
  );

  await t.test("a final failure is returned again", async (t) => {
    seller.script = { onProof: ({ response }) => void response.writeHead(500).end() };
    const first = await withKey("failed");
    t.match(first, { status: 502, body: { code: "upstream_error", paid: false } });
    const proofs = seller.proofs.length;
    const again = await withKey("failed");
    t.match(again, {
      status: 502,
      body: { code: "upstream_error", paymentId: first.body["paymentId"] },
    });
    t.equal(again.headers["idempotent-replayed"], "true");
    t.equal(seller.proofs.length, proofs);
    seller.script = {};
  });

  await t.test("of a free response a digest is stored: GET is sent again", async (t) => {
    let requests = 0;
    const free = () =>
      (seller.script = {
        onUnpaid: ({ response }) => void response.writeHead(200).end(`free ${(requests += 1)}`),
      });
    free();
    t.match(await withKey("free"), { status: 200, body: { paid: false, text: "free 1" } });
    const { rows } = await made.database.pool.query<{ response: unknown }>(
      "SELECT response FROM idempotency_keys WHERE key = 'free'",
    );
    t.match(rows, [
      { response: /^\{"freeAnswer":\{"status":200,"bytes":6,"sha256":"[0-9a-f]{64}"\}\}$/ },
    ]);
    t.notMatch(JSON.stringify(rows), "free 1");
    const again = await withKey("free");
    t.match(again, { status: 200, body: { text: "free 2" } });
    t.equal(
      again.headers["idempotent-replayed"],
      undefined,
      "another response is not marked as a replay",
    );
    t.match(await withKey("free", { maxAmount: "1" }), {
      body: { code: "idempotency_key_reused" },
    });

    t.match(await withKey("free-post", { method: "POST", body: "x" }), { status: 200 });
    const times = requests;
    t.match(await withKey("free-post", { method: "POST", body: "x" }), {
      status: 409,
      body: { code: "answer_not_kept", paid: false, freeAnswer: { status: 200, bytes: 6 } },
    });
    t.equal(requests, times, "a request that may have effects is not sent twice");

    seller.script = {};
    const before = await made.balanceOf(PAYEE);
    t.match(await withKey("free"), { status: 409, body: { code: "answer_not_kept" } });
    t.equal(await made.balanceOf(PAYEE), before, "a key of a free response never pays");
  });

  await t.test("a free POST runs once, however often its key is repeated", async (t) => {
    const ran: string[] = [];
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    seller.script = {
      onUnpaid: async ({ request, response }) => {
        ran.push(String(request.url));
        if (request.url === "/hang") return;
        if (request.url === "/moved") response.writeHead(303, { location: "/made" }).end();
        else {
          await held;
          response.writeHead(201).end("made");
        }
      },
    };
    const post = (path: string) =>
      withKey(`post-${path}`, {
        url: `${seller.origin}/${path}`,
        method: "POST",
        body: "1",
        timeoutMs: 2_000,
      });
    const first = post("once");
    await until(() => ran.length === 1);
    t.match(await post("once"), { status: 409, body: { code: "idempotency_in_progress" } });
    release();
    t.match(await first, { status: 200, body: { status: 201, text: "made" } });
    t.match(await post("once"), { status: 409, body: { code: "answer_not_kept" } });
    t.match(await post("hang"), { status: 504, body: { code: "upstream_timeout" } });
    const hung = await post("hang");
    t.match(hung, { status: 504, body: { code: "upstream_timeout" } });
    t.equal(hung.headers["idempotent-replayed"], "true");
    for (let nth = 0; nth < 2; nth += 1)
      t.match(await post("moved"), {
        body: { code: "upstream_redirect", thirdParty: { headers: { location: "/made" } } },
      });
    await made.database.pool.query(
      `INSERT INTO idempotency_keys (subject_id, route, key, body_hash, created_at)
       SELECT subject_id, route, 'post-dead', body_hash, now() - interval '1 minute' FROM idempotency_keys WHERE key = 'post-hang'`,
    );
    const dead = await withKey("post-dead", {
      url: `${seller.origin}/hang`,
      method: "POST",
      body: "1",
      timeoutMs: 2_000,
    });
    t.match(dead, { status: 409, body: { code: "answer_not_kept", detail: /may have reached/ } });
    t.same(ran, ["/once", "/hang", "/moved"]);
    // A request that was never sent may be sent again.
    const nowhere = { url: "https://127.0.0.1:9/", method: "POST", body: "1" };
    for (let nth = 0; nth < 2; nth += 1)
      t.match((await withKey("nowhere", nowhere)).headers["idempotent-replayed"], undefined);
    seller.script = {};
    t.match(await withKey("paid-post", { method: "POST", body: "1" }), { body: { paid: true } });
    t.match(await withKey("paid-post", { method: "POST", body: "1" }), { body: { paid: true } });
  });

  await assertLedgerIsChain(t, made);
});

t.test("fetches and spends together stay within one limit", async (t) => {
  const made = await market(t, { agent: { dailyLimit: "0.01" } });
  const { app, agent, seller } = made;
  // Equal calls without a key would join each other.
  const spend = (memo: string) => spendAs(app, agent, { recipient: PAYEE, amount: "0.001", memo });
  const statuses = await Promise.all(
    Array.from({ length: 15 }, async (_, index) => [
      (await made.fetch({ url: `${seller.url}&n=${index}` })).status,
      (await spend(String(index))).statusCode,
    ]),
  );
  const ok = statuses.flat().filter((status) => status === 200).length;
  t.equal(ok, 10, "exactly the limit");
  t.equal(statuses.flat().filter((status) => status === 403).length, 20);
  t.equal(await made.balanceOf(PAYEE), 10_000n);
  await assertLedgerIsChain(t, made);
});

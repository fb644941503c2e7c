// Goal: one call returns paid data of any type, and the answer states exactly what was requested, paid and delivered.
import t from "tap";
import { signIn } from "../helpers/owner.ts";
import { assertLedgerIsChain, market, PAYEE } from "./market.ts";

t.test("x402-fetch", async (t) => {
  const made = await market(t);
  const { seller, agent } = made;
  const url = seller.url;

  await t.test("pays, and returns the data with a confirmed receipt", async (t) => {
    seller.script = {};
    const before = await made.balanceOf(PAYEE);
    const { status, body } = await made.fetch({ url });
    t.equal(status, 200, JSON.stringify(body));
    t.match(body, {
      success: true,
      paid: true,
      amountPaid: "0.001",
      txHash: /^0x[0-9a-f]{64}$/,
      data: { answer: 42 },
      source: url,
      status: 200,
      contentType: "application/json",
      network: `eip155:${made.chain.chainId}`,
      payTo: PAYEE,
      paymentId: /^pay_/,
      delivered: true,
      remaining: "9.999",
    });
    t.equal((await made.balanceOf(PAYEE)) - before, 1000n);
    t.match(await made.lastPayment(), {
      status: "settled",
      delivered: true,
      upstream_status: 200,
      tx_hash: body["txHash"],
      url,
    });
    const [proof] = seller.proofs;
    t.match(proof, {
      x402Version: 2,
      accepted: seller.entry(),
      resource: { url },
      payload: { authorization: { from: agent.walletAddress, to: PAYEE, value: "1000" } },
    });
  });

  await t.test("a free target costs nothing, whatever its status", async (t) => {
    seller.script = {
      onUnpaid: ({ response, request }) =>
        void response
          .writeHead(request.url === "/gone" ? 410 : 200, { "content-type": "text/plain" })
          .end("hello"),
    };
    t.match(await made.fetch({ url }), {
      status: 200,
      body: {
        paid: false,
        amountPaid: "0",
        txHash: null,
        text: "hello",
        paymentId: null,
        status: 200,
        delivered: true,
      },
    });
    t.match((await made.fetch({ url: `${seller.origin}/gone` })).body, {
      paid: false,
      status: 410,
      delivered: false,
    });
  });

  await t.test("method, headers and body are sent both times, credentials never", async (t) => {
    const seen: { method: string | undefined; headers: object; body: string }[] = [];
    seller.script = {
      onUnpaid: ({ request, response, body }) => {
        seen.push({ method: request.method, headers: request.headers, body });
        seller.refuse(response, seller.entry());
      },
      onProof: async ({ request, response, body, proof }) => {
        seen.push({ method: request.method, headers: request.headers, body });
        const transaction = await seller.settle(proof);
        response
          .writeHead(201, { "content-type": "text/plain", ...seller.receipt({ transaction }) })
          .end("made");
      },
    };
    const answer = await made.fetch({
      url,
      method: "POST",
      headers: {
        "X-Mine": "1",
        Authorization: "Bearer s3cret",
        Cookie: "s3cret=1",
        "X-PAYMENT": "s3cret",
      },
      body: { question: ["life"] },
    });
    t.match(answer, { status: 200, body: { paid: true, status: 201, text: "made" } });
    t.equal(seen.length, 2);
    for (const { method, headers, body } of seen) {
      t.equal(method, "POST");
      t.equal(body, '{"question":["life"]}');
      t.match(headers, { "x-mine": "1", "content-type": "application/json" });
      const text = JSON.stringify(headers);
      t.notOk(text.includes("s3cret") || text.includes(agent.apiKey), "no credential");
    }
    seller.script = {};
    t.match(
      await made.fetch({
        url,
        method: "PUT",
        body: "plain",
        headers: { "content-type": "text/csv" },
      }),
      {
        status: 200,
        body: { paid: true },
      },
    );
  });

  await t.test("text, binary, empty and mislabelled responses", async (t) => {
    const cases: [string, Buffer, object][] = [
      ["text/html; charset=utf-8", Buffer.from("<b>ü</b>"), { text: "<b>ü</b>", data: undefined }],
      ["image/png", Buffer.from([0x89, 0x50, 0, 255]), { dataBase64: "iVAA/w==" }],
      ["application/json", Buffer.from("not json"), { text: "not json", data: undefined }],
      ["application/problem+json", Buffer.from("[1]"), { data: [1], text: undefined }],
      ["text/plain", Buffer.from([0xff, 0xfe, 0]), { dataBase64: "//4A" }],
      ["application/json", Buffer.alloc(0), { data: null }],
    ];
    for (const [contentType, bytes, expected] of cases) {
      seller.script = {
        onUnpaid: ({ response }) =>
          void response.writeHead(200, { "content-type": contentType }).end(bytes),
      };
      t.match((await made.fetch({ url })).body, { contentType, ...expected }, contentType);
    }
  });

  await t.test("the cheapest of several terms is paid", async (t) => {
    seller.script = {
      terms: () => [
        seller.entry({ amount: "3000" }),
        seller.entry({ amount: "1", scheme: "upto" }),
        seller.entry({ amount: "2000" }),
        seller.entry({ amount: "1", network: "eip155:1" }),
      ],
    };
    t.match(await made.fetch({ url }), { status: 200, body: { amountPaid: "0.002" } });
  });

  await t.test("a dry run returns the price and every verdict, stores nothing", async (t) => {
    seller.script = {};
    const proofs = seller.proofs.length;
    const last = await made.lastPayment();
    t.match(await made.fetch({ url, dryRun: true }), {
      status: 200,
      body: {
        dryRun: true,
        paid: false,
        amountPaid: "0",
        txHash: null,
        price: "0.001",
        requirement: seller.entry(),
        payTo: PAYEE,
        verdict: { allowed: true, code: null },
      },
    });
    const refused = await made.fetch({ url, dryRun: true, maxAmount: "0.0005" });
    t.match(refused.body, { verdict: { allowed: false, code: "price_exceeds_max" } });
    const rules = (refused.body["verdict"] as { rules: { rule: string; passed: boolean | null }[] })
      .rules;
    t.match(
      rules.find(({ rule }) => rule === "max_amount"),
      { passed: false },
    );
    t.ok(rules.length >= 6, "rule by rule");
    const weekly = "UPDATE agents SET weekly_limit = $2 WHERE id = $1";
    await made.database.pool.query(weekly, [made.agent.id, 1]);
    const full = (await made.fetch({ url, dryRun: true })).body["verdict"] as {
      rules: Record<string, unknown>[];
    };
    await made.database.pool.query(weekly, [made.agent.id, null]);
    t.match(full, {
      allowed: false,
      code: "weekly_limit_exceeded",
      availableAt: null,
      policy: { rule: "weekly_limit", window: "7d", limit: "0.000001" },
    });
    t.match(
      full.rules.find(({ rule }) => rule === "weekly_limit"),
      { passed: false, availableAt: null },
      "more than the whole week: it is never available",
    );
    t.equal(seller.proofs.length, proofs, "nothing was signed");
    t.same(await made.lastPayment(), last, "nothing was stored");
  });

  await t.test("denials are stored, contain the policy, and sign nothing", async (t) => {
    seller.script = {};
    const proofs = seller.proofs.length;
    const denied = await made.fetch({ url, maxAmount: "0.0009" });
    t.match(denied, {
      status: 403,
      body: {
        code: "price_exceeds_max",
        blocked: true,
        paymentId: /^pay_/,
        policy: { requested: "0.001" },
      },
    });
    t.match(await made.lastPayment(), { status: "blocked", denial_code: "price_exceeds_max" });
    seller.script = {
      terms: () => seller.entry({ payTo: "0x90F79bf6EB2c4f870365E785982E1f101E93b906" }),
    };
    t.match(await made.fetch({ url }), {
      status: 403,
      body: { code: "recipient_not_allowed", blocked: true },
    });
    seller.script = { terms: () => seller.entry({ amount: "10000001" }) };
    t.match(await made.fetch({ url }), {
      status: 403,
      body: { code: "daily_limit_exceeded", availableAt: null },
    });
    seller.script = { terms: () => seller.entry({ amount: "6000000" }) };
    t.match(await made.fetch({ url }), { status: 402, body: { code: "insufficient_funds" } });
    const blocked = await made.fetch({ url: "http://127.0.0.1:1/" });
    t.match(blocked, { status: 403, body: { code: "url_blocked", blocked: true } });
    t.match(await made.lastPayment(), {
      status: "blocked",
      denial_code: "url_blocked",
      amount: "0",
    });
    t.equal(seller.proofs.length, proofs);
  });

  await t.test("an invalid request is refused with its code", async (t) => {
    const cases: [object, string][] = [
      [{}, "validation_failed"],
      [{ url, listingId: "lst_x" }, "validation_failed"],
      [{ url, unknown: 1 }, "validation_failed"],
      [{ url, method: "TRACE" }, "validation_failed"],
      [{ url, method: "CONNECT" }, "validation_failed"],
      [{ url, body: "x" }, "validation_failed"],
      [{ url, headers: { "X-A": "a\r\nX-B: b" } }, "validation_failed"],
      [{ url, headers: { "X-A": 1 } }, "validation_failed"],
      [{ url, timeoutMs: 0 }, "validation_failed"],
      [{ url, timeoutMs: -1 }, "validation_failed"],
      [{ url, timeoutMs: 1e9 }, "validation_failed"],
      [{ url: "no url" }, "validation_failed"],
      [{ url, maxAmount: "1e3" }, "invalid_amount"],
      [{ url, maxAmount: "0" }, "invalid_amount"],
      [{ url, maxAmount: 1 }, "invalid_amount"],
    ];
    for (const [body, code] of cases) {
      const answer = await made.fetch(body as Record<string, unknown>);
      t.match(answer, { status: 422, body: { code } }, JSON.stringify(body));
    }
    t.equal((await made.fetch({ url }, { authorization: "Bearer nonsense" })).status, 401);
    t.equal((await made.fetch({ listingId: "lst_missing" })).status, 404);
  });

  await t.test("a payee that is the agent's own wallet or the token is refused", async (t) => {
    for (const payTo of [agent.walletAddress, made.chain.usdc]) {
      seller.script = { terms: () => seller.entry({ payTo }) };
      t.match(await made.fetch({ url }), {
        status: 422,
        body: { code: "unsupported_payment_requirements" },
      });
    }
  });

  await t.test("the owner runs a trial fetch under the agent's limits", async (t) => {
    seller.script = {};
    const tryOut = (id: string, body: object, headers = made.owner.headers) =>
      made.app.inject({
        method: "POST",
        url: `/api/agents/${id}/try`,
        headers,
        payload: JSON.stringify(body),
      });
    const paid = await tryOut(agent.id, { url });
    t.match(paid.json(), { paid: true, amountPaid: "0.001", data: { answer: 42 } });
    const denied = await tryOut(agent.id, { url, maxAmount: "0.0001" });
    t.match(denied.json(), { code: "price_exceeds_max" });
    const otherOwner = await signIn(made);
    t.equal((await tryOut(agent.id, { url }, otherOwner.headers)).statusCode, 404);
    t.equal((await tryOut(agent.id, { url }, agent.headers)).statusCode, 401);
  });

  await t.test("the ledger shows the seller's terms unchanged", async (t) => {
    const { paymentId } = (await made.fetch({ url })).body as { paymentId: string };
    const answer = await made.app.inject({
      url: `/api/agents/me/payments/${paymentId}`,
      headers: agent.headers,
    });
    t.match(answer.json(), {
      kind: "x402",
      status: "settled",
      x402: {
        url,
        thirdParty: { untrusted: true, requirement: seller.entry() },
        upstreamStatus: 200,
        delivered: true,
      },
    });
  });

  await assertLedgerIsChain(t, made);
});

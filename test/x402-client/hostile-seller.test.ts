// Goal: whatever a seller does, an agent pays exactly once or not at all, receives the true outcome, and gets an unspent budget back.
import type { ServerResponse } from "node:http";
import { gzipSync } from "node:zlib";
import t from "tap";
import { until } from "../helpers/until.ts";
import { assertLedgerIsChain, market, PAYEE } from "./market.ts";
import type { Proof, Script } from "./scripted-seller.ts";
import { localServer } from "./sellers.ts";

const OTHER = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
const MAX_BYTES = 5 * 1024 * 1024;
const HASH = `0x${"ab".repeat(32)}` as const;

t.test("hostile sellers", async (t) => {
  const made = await market(t);
  const { seller, chain } = made;
  const url = seller.url;

  /** Runs one script; returns the agent's answer, the number of proofs, and the change of balances. */
  let calls = 0;
  async function run(script: Script, body: Record<string, unknown> = {}) {
    // The header makes each call a separate purchase: an identical call without a key would join an undecided one.
    calls += 1;
    seller.script = script;
    const proofsBefore = seller.proofs.length;
    const balance = await made.balanceOf(PAYEE);
    const headers = { "x-run": String(calls) };
    const answer = await made.fetch({ url, timeoutMs: 1_000, headers, ...body });
    const proofs = seller.proofs.slice(proofsBefore);
    return {
      ...answer,
      proofs: proofs.length,
      nonces: new Set(proofs.map(({ payload }) => payload.authorization.nonce)).size,
      earned: (await made.balanceOf(PAYEE)) - balance,
      reserved: await made.reserved(),
    };
  }
  const isFirst = ({ payload }: Proof): boolean =>
    seller.proofs.filter(
      (other) => other.payload.authorization.nonce === payload.authorization.nonce,
    ).length === 1;
  const NOTHING = { earned: 0n, reserved: /^0$/, nonces: 1 };

  await t.test("after the proof: no second payment for one request", async (t) => {
    for (const [label, over] of [
      ["price raised", { amount: "2000" }],
      ["payTo changed", { payTo: OTHER }],
      ["the same terms again", {}],
    ] as const) {
      const result = await run({
        onProof: ({ response }) => seller.refuse(response, seller.entry(over)),
      });
      t.match(
        result,
        {
          status: 502,
          body: {
            code: "settlement_failed",
            paid: false,
            paymentId: /^pay_/,
            retryable: false,
            suggestion: /refused the payment itself/,
          },
          proofs: 1,
          ...NOTHING,
        },
        label,
      );
      t.match(await made.lastPayment(), {
        status: "voided",
        delivered: false,
        upstream_status: 402,
      });
    }
    const settled = await run({
      onProof: async ({ response, proof }) => {
        const transaction = await seller.settle(proof);
        seller.refuse(response, seller.entry(), seller.receipt({ transaction }));
      },
    });
    t.match(settled, {
      status: 502,
      body: { code: "paid_upstream_failed", paid: true, amountPaid: "0.001", txHash: /^0x/ },
      proofs: 1,
      earned: 1000n,
    });
    t.match(await made.lastPayment(), {
      status: "settled",
      delivered: false,
      upstream_status: 402,
    });
  });

  await t.test("accepts, then hangs: sent once more, then canceled", async (t) => {
    const result = await run({ onProof: () => undefined }, { timeoutMs: 300 });
    t.match(result, {
      status: 504,
      body: { code: "upstream_timeout", paid: false },
      proofs: 2,
      ...NOTHING,
    });
    const proof = seller.proofs.at(-1);
    await t.rejects(async () => proof && seller.settle(proof), "the seller cannot collect later");
    t.match(await made.lastPayment(), {
      status: "voided",
      delivered: false,
      upstream_status: null,
    });
  });

  await t.test("fails after settling: paid once, and reported so", async (t) => {
    const result = await run({
      onProof: async ({ response, proof }) => {
        if (
          seller.proofs.filter(
            (other) => other.payload.authorization.nonce === proof.payload.authorization.nonce,
          ).length === 1
        )
          await seller.settle(proof);
        response.writeHead(500).end("boom");
      },
    });
    t.match(result, {
      status: 502,
      body: {
        code: "paid_upstream_failed",
        txHash: /^0x/,
        amountPaid: "0.001",
        upstreamStatus: 500,
      },
      proofs: 2,
      nonces: 1,
      earned: 1000n,
    });
  });

  await t.test("settles, and answers too late: the refusal says what to change", async (t) => {
    const result = await run(
      { onProof: async ({ proof }) => void (await seller.settle(proof).catch(() => undefined)) },
      { timeoutMs: 2_000 },
    );
    t.match(result, {
      status: 502,
      body: { code: "paid_upstream_failed", amountPaid: "0.001", detail: /longer timeoutMs/ },
      proofs: 2,
      nonces: 1,
      earned: 1000n,
    });
  });

  await t.test("fails without settling: the budget is released before the answer", async (t) => {
    for (const status of [500, 503, 404, 400]) {
      const result = await run({
        onProof: ({ response }) => void response.writeHead(status).end("boom"),
      });
      t.match(
        result,
        {
          status: 502,
          body: { code: "upstream_error", paid: false },
          proofs: status >= 500 ? 2 : 1,
          ...NOTHING,
        },
        String(status),
      );
    }
    const cut = await run({ onProof: ({ response }) => void response.destroy() });
    t.match(
      cut,
      { status: 502, body: { code: "upstream_error" }, proofs: 2, ...NOTHING },
      "connection cut",
    );
  });

  await t.test("recovers when the same proof is sent again", async (t) => {
    let failures = 0;
    const result = await run({
      onProof: async ({ response, proof }) => {
        if (failures++ === 0) {
          response.writeHead(503).end();
          return;
        }
        const transaction = await seller.settle(proof);
        response.writeHead(200, seller.receipt({ transaction })).end("late but here");
      },
    });
    t.match(result, {
      status: 200,
      body: { paid: true, text: "late but here" },
      proofs: 2,
      nonces: 1,
      earned: 1000n,
    });
  });

  await t.test("settles after it answered: still confirmed", async (t) => {
    let settled: Promise<unknown> = Promise.resolve();
    const result = await run({
      onProof: ({ response, proof }) => {
        response.writeHead(200).end("data");
        settled = new Promise((resolve) => setTimeout(resolve, 400)).then(() =>
          seller.settle(proof),
        );
      },
    });
    await settled;
    t.match(result, {
      status: 200,
      body: { paid: true, txHash: /^0x/, text: "data" },
      earned: 1000n,
    });
  });

  await t.test("redirects are not followed, with or without a proof", async (t) => {
    const elsewhere = await localServer(t, (_request, response) => response.end("stolen"));
    made.config.fetchPrivateOrigins.push(elsewhere.origin);
    const probe = await run({
      onUnpaid: ({ response }) =>
        void response.writeHead(302, { location: elsewhere.origin }).end(),
    });
    t.match(probe, {
      status: 502,
      body: { code: "upstream_redirect", thirdParty: { headers: { location: elsewhere.origin } } },
      proofs: 0,
      earned: 0n,
    });
    const paid = await run({
      onProof: async ({ response, proof }) => {
        const transaction = await seller.settle(proof);
        response
          .writeHead(307, { location: elsewhere.origin, ...seller.receipt({ transaction }) })
          .end("moved");
      },
    });
    t.match(paid, {
      status: 200,
      body: {
        paid: true,
        status: 307,
        text: "moved",
        headers: { location: elsewhere.origin },
        note: /did not follow/,
        thirdParty: { paymentResponse: { success: true, transaction: paid.body["txHash"] } },
      },
      proofs: 1,
      earned: 1000n,
    });
    t.equal(elsewhere.connections(), 0, "no proof was sent to another origin");
  });

  await t.test("endless, compressed and slow bodies end at their limits", async (t) => {
    const bomb = gzipSync(Buffer.alloc(32 * 1024 * 1024));
    const floods: Record<string, (response: ServerResponse) => void> = {
      "an endless body": (response) => {
        const more = (): void => {
          while (!response.destroyed && response.write(Buffer.alloc(65_536)));
        };
        response.on("drain", more);
        more();
      },
      "a gzip bomb": (response) =>
        void response.writeHead(200, { "content-encoding": "gzip" }).end(bomb),
      "a megabyte of header": (response) =>
        void response.writeHead(200, { "x-big": "x".repeat(1_048_576) }).end(),
      "a drip": (response) => {
        response.writeHead(200);
        const timer = setInterval(() => response.write("."), 20);
        response.on("close", () => clearInterval(timer));
      },
    };
    const ends: Record<string, { code?: string; truncatedBy?: string; bytes?: number }> = {
      "an endless body": { truncatedBy: "size", bytes: MAX_BYTES },
      "a gzip bomb": { truncatedBy: "size", bytes: MAX_BYTES },
      "a megabyte of header": { code: "upstream_error" },
      "a drip": { truncatedBy: "timeout" },
    };
    for (const [label, flood] of Object.entries(floods)) {
      const timeoutMs = label === "a drip" ? 500 : 20_000;
      const end = ends[label] ?? {};
      const free = await run({ onUnpaid: ({ response }) => flood(response) }, { timeoutMs });
      t.match(free, { body: end, proofs: 0, earned: 0n, reserved: /^0$/ }, `${label}, free`);
      const settles = label !== "a drip";
      const paid = await run(
        {
          onProof: async ({ response, proof, proofs }) => {
            if (settles && proofs > 0 && isFirst(proof)) await seller.settle(proof);
            flood(response);
          },
        },
        { timeoutMs },
      );
      if (label === "a megabyte of header")
        t.match(paid, { body: { code: "paid_upstream_failed" }, nonces: 1, earned: 1000n }, label);
      else
        t.match(
          paid,
          {
            status: 200,
            body: { ...end, paid: settles, delivered: true, truncated: true, status: 200 },
            proofs: 1,
            earned: settles ? 1000n : 0n,
            reserved: /^0$/,
          },
          `${label}, paid`,
        );
    }
  });

  await t.test("malformed, unpayable or too expensive terms sign nothing", async (t) => {
    const header = (value: string): Script => ({
      onUnpaid: ({ response }) =>
        void response.writeHead(402, { "payment-required": value }).end("{}"),
    });
    for (const script of [
      header("***"),
      header("e30="),
      header(Buffer.from("x".repeat(30_000)).toString("base64")),
      { onUnpaid: ({ response }) => void response.writeHead(402).end("pay me") } satisfies Script,
    ])
      t.match(await run(script), {
        status: 502,
        body: { code: "upstream_invalid_402" },
        proofs: 0,
      });
    t.match(await run(header("x".repeat(1_048_576))), {
      status: 502,
      body: { code: "upstream_error" },
      proofs: 0,
    });
    for (const over of [
      { asset: OTHER },
      { network: "eip155:1" },
      { scheme: "upto" },
      { amount: "0" },
      { amount: "-5" },
      { amount: "1e6" },
      { amount: String(1n << 256n) },
      { payTo: `0x${"0".repeat(40)}` },
      { payTo: chain.usdc },
      { payTo: made.agent.walletAddress },
      { extra: { name: "GatewayWalletBatched", version: "1", verifyingContract: OTHER } },
      { extra: { name: "USDC", version: "2", chainId: 1 } },
      { extra: { name: "USDC", version: "2", verifyingContract: OTHER } },
    ])
      t.match(
        await run({ terms: () => seller.entry(over) }),
        { status: 422, body: { code: "unsupported_payment_requirements" }, proofs: 0 },
        JSON.stringify(over),
      );
    t.match(await run({ terms: () => seller.entry({ maxTimeoutSeconds: -1 }) }), {
      status: 502,
      body: { code: "upstream_invalid_402" },
      proofs: 0,
    });
    t.match(await run({}, { maxAmount: "0.000999" }), {
      status: 403,
      body: { code: "price_exceeds_max" },
      proofs: 0,
    });
  });

  await t.test("a huge maxTimeoutSeconds does not create a long-lived authorization", async (t) => {
    const result = await run({ terms: () => seller.entry({ maxTimeoutSeconds: 1e15 }) });
    t.match(result, { status: 200, proofs: 1 });
    const lifetime =
      Number(seller.proofs.at(-1)?.payload.authorization.validBefore) - Date.now() / 1000;
    t.ok(lifetime <= 121 && lifetime > 60, `${lifetime} s`);
  });

  await t.test("false receipts: the chain decides", async (t) => {
    const falseReceipt = await run({
      onProof: ({ response }) =>
        void response.writeHead(200, seller.receipt({ transaction: HASH })).end("data"),
    });
    t.match(falseReceipt, {
      status: 504,
      body: { code: "payment_status_unknown", paymentId: /^pay_/, delivered: true, text: "data" },
      proofs: 1,
      earned: 0n,
      reserved: "0.001",
    });
    t.match(await made.lastPayment(), { status: "unknown", delivered: true });

    let truth = "";
    const otherHash = await run({
      onProof: async ({ response, proof }) => {
        truth = await seller.settle(proof);
        response
          .writeHead(200, seller.receipt({ transaction: HASH, amount: "999999", payer: OTHER }))
          .end("data");
      },
    });
    t.match(otherHash, {
      status: 200,
      body: { paid: true, txHash: truth, amountPaid: "0.001" },
      earned: 1000n,
    });

    const foreign = await chain.publicClient.getBlock({ includeTransactions: false });
    const borrowed = await run({
      onProof: async ({ response, proof }) => {
        truth = await seller.settle(proof);
        // A real transaction, but of another transfer.
        response
          .writeHead(200, seller.receipt({ transaction: foreign.transactions[0] ?? HASH }))
          .end("data");
      },
    });
    t.match(borrowed, { status: 200, body: { paid: true, txHash: truth }, earned: 1000n });

    for (const header of [
      "%%%",
      Buffer.from("[]").toString("base64"),
      Buffer.from("{").toString("base64"),
    ]) {
      const garbled = await run({
        onProof: async ({ response, proof }) => {
          await seller.settle(proof);
          response.writeHead(200, { "payment-response": header }).end("data");
        },
      });
      t.match(
        garbled,
        { status: 200, body: { paid: true }, earned: 1000n },
        "an unreadable receipt",
      );
    }
  });

  await t.test("an unused authorization is voided once it has expired on chain", async (t) => {
    await chain.testClient.increaseTime({ seconds: 300 });
    await chain.testClient.mine({ blocks: 2 });
    await until(async () => (await made.reserved()) === "0", 20_000);
    await assertLedgerIsChain(t, made);
  });
});

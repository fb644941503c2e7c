// Goal: the paywall charges exactly once, before serving, in any Fastify app with any facilitator, for stock clients.
import {
  decodePaymentRequiredHeader,
  decodePaymentResponseHeader,
  encodePaymentSignatureHeader,
  HTTPFacilitatorClient,
} from "@x402/core/http";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";
import { wrapAxiosWithPayment } from "@x402/axios";
import { wrapFetchWithPayment } from "@x402/fetch";
import type { PaymentPayload, PaymentRequirements } from "@x402/core/types";
import { create as createAxios } from "axios";
import Fastify from "fastify";
import t, { type Test } from "tap";
import { paywall } from "../../packages/paywall/src/paywall.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import { proofFor, referenceFacilitator, stockClient } from "./stock.ts";

const PRICE_ATOMIC = 10_000n;

async function joker(t: Test, chain: TestChain) {
  const facilitator = referenceFacilitator(chain);
  const payTo = chain.accounts[9]?.address ?? "";
  const served: unknown[] = [];
  const app = Fastify();
  await app.register(paywall, {
    facilitator,
    networks: [`eip155:${chain.chainId}`],
    payTo,
    walletRpcUrl: () => chain.rpcUrl,
  });
  const price = { price: "0.01", description: 'A <b>"joke"</b>' };
  app.get("/joke", { config: { paywall: price } }, async (request) => {
    served.push(request.payment);
    return { joke: "knock knock", payer: request.payment?.payer };
  });
  app.get("/broken", { config: { paywall: price } }, async () => {
    throw new Error("after payment");
  });
  const prepare = async () => {
    throw Object.assign(new Error("no data today"), { statusCode: 503 });
  };
  app.get("/unprepared", { config: { paywall: { ...price, prepare } } }, async () => ({}));
  app.post(
    "/order",
    {
      config: { paywall: price },
      schema: {
        body: { type: "object", required: ["size"], properties: { size: { type: "integer" } } },
      },
    },
    async (request) => ({ size: (request.body as { size: number }).size }),
  );
  const sizes: unknown[] = [];
  app.get(
    "/sized",
    {
      config: { paywall: price },
      schema: {
        querystring: {
          type: "object",
          required: ["size"],
          properties: { size: { type: "integer" } },
        },
      },
      // Subscribers are served for free, before the paywall.
      preHandler: async (request, reply) => {
        sizes.push((request.query as { size: unknown }).size);
        return request.headers["x-subscriber"] ? reply.send({ free: true }) : undefined;
      },
    },
    async () => ({ free: false }),
  );
  app.get("/free", async () => ({ free: true }));
  const origin = await app.listen({ host: "127.0.0.1", port: 0 });
  t.teardown(() => app.close());
  return { app, facilitator, payTo, served, sizes, origin };
}

const balanceOf = (chain: TestChain, address: string) => chain.usdcOf(address as `0x${string}`);

async function requiredOf(url: string) {
  const answer = await fetch(url);
  return decodePaymentRequiredHeader(answer.headers.get("payment-required") ?? "");
}

t.test("on a network without a version 1 name", async (t) => {
  const chain = await testChain(t);
  const [payer, other] = chain.accounts;
  if (!payer || !other) throw new Error("no accounts");
  await chain.mint([payer.address, other.address], 10_000_000n);
  const shop = await joker(t, chain);

  t.test("an unpaid request gets the terms in both versions, and is never cached", async (t) => {
    const answer = await fetch(`${shop.origin}/joke?size=l`);
    t.equal(answer.status, 402);
    t.equal(answer.headers.get("cache-control"), "no-store");
    t.match(answer.headers.get("content-type"), /application\/json/);
    const required = decodePaymentRequiredHeader(answer.headers.get("payment-required") ?? "");
    t.equal(required.x402Version, 2);
    t.equal(required.resource.url, `${shop.origin}/joke?size=l`);
    t.same(required.accepts, [
      {
        scheme: "exact",
        network: "eip155:5042002",
        asset: chain.usdc,
        amount: "10000",
        payTo: shop.payTo,
        maxTimeoutSeconds: 120,
        extra: { name: "USDC", version: "2", paymentFlow: "upfront" },
      },
    ]);
    const body = (await answer.json()) as { x402Version: number; accepts: object[]; error: string };
    t.equal(body.x402Version, 1);
    t.type(body.error, "string");
    t.match(body.accepts[0], {
      scheme: "exact",
      maxAmountRequired: "10000",
      asset: chain.usdc,
      payTo: shop.payTo,
      resource: `${shop.origin}/joke?size=l`,
    });
    t.equal(shop.facilitator.settleCalls, 0);
  });

  t.test("without a proof a seller's hooks see what is valid, and nothing else", async (t) => {
    const subscriber = { headers: { "x-subscriber": "1" } };
    const served = await fetch(`${shop.origin}/sized?size=3`, subscriber);
    t.same([served.status, await served.json()], [200, { free: true }]);
    t.equal((await fetch(`${shop.origin}/sized?size=4`)).status, 402);
    t.same(shop.sizes, [3, 4]);
    const invalid = await fetch(`${shop.origin}/sized?size=l`);
    t.equal(invalid.status, 402, "the price is shown before the parameters are known");
    t.ok(invalid.headers.get("payment-required"));
    t.equal((await fetch(`${shop.origin}/sized`, subscriber)).status, 402);
    const proof = await proofFor(chain, payer, await requiredOf(`${shop.origin}/sized`));
    const refused = await fetch(`${shop.origin}/sized?size=l`, { headers: proof.headers });
    t.equal(refused.status, 400, "with a proof it is refused");
    t.same(shop.sizes, [3, 4]);
    t.equal(shop.facilitator.settleCalls, 0);
  });

  t.test("a request target with a fragment is refused", async (t) => {
    const { hostname, port } = new URL(shop.origin);
    const sent = get({ hostname, port, path: "/joke#?size=l" });
    const [answer] = (await once(sent, "response")) as [IncomingMessage];
    t.equal(answer.statusCode, 400);
    t.match(await text(answer), "invalid_request_target");
  });

  t.test("HEAD returns the terms and sells nothing, even with a proof", async (t) => {
    const proof = await proofFor(chain, payer, await requiredOf(`${shop.origin}/joke`));
    const answer = await fetch(`${shop.origin}/joke`, { method: "HEAD", headers: proof.headers });
    t.equal(answer.status, 402);
    t.equal(shop.facilitator.settleCalls, 0);
  });

  t.test("the stock fetch client pays, and the receipt is a real transfer", async (t) => {
    const before = await balanceOf(chain, shop.payTo);
    const paying = wrapFetchWithPayment(fetch, stockClient(chain, payer));
    const answer = await paying(`${shop.origin}/joke`);
    t.equal(answer.status, 200);
    t.equal(answer.headers.get("cache-control"), "no-store");
    t.same(await answer.json(), { joke: "knock knock", payer: payer.address });
    const receipt = decodePaymentResponseHeader(answer.headers.get("payment-response") ?? "");
    t.equal(receipt.success, true);
    const mined = await chain.publicClient.getTransactionReceipt({
      hash: receipt.transaction as `0x${string}`,
    });
    t.equal(mined.status, "success");
    t.equal((await balanceOf(chain, shop.payTo)) - before, PRICE_ATOMIC);
    t.match(shop.served.at(-1), {
      payer: payer.address,
      transaction: receipt.transaction,
      amount: "10000",
    });
  });

  t.test("the older stock axios client pays too", async (t) => {
    const client = stockClient(chain, payer);
    const paying = wrapAxiosWithPayment(createAxios(), client as never);
    const answer = await paying.get<{ joke: string }>(`${shop.origin}/joke`);
    t.equal(answer.status, 200);
    t.equal(answer.data.joke, "knock knock");
    t.type(answer.headers["payment-response"], "string");
  });

  t.test("a proof gets one response", async (t) => {
    const proof = await proofFor(chain, payer, await requiredOf(`${shop.origin}/joke`));
    const first = await fetch(`${shop.origin}/joke`, { headers: proof.headers });
    t.equal(first.status, 200);
    const again = await fetch(`${shop.origin}/joke`, { headers: proof.headers });
    t.equal(again.status, 402);
    t.equal(again.headers.get("payment-required"), null, "no request to pay a second time");
    const receipt = decodePaymentResponseHeader(again.headers.get("payment-response") ?? "");
    t.equal(receipt.success, false);
    t.type(receipt.errorReason, "string");
    t.equal(again.headers.get("cache-control"), "no-store");
  });

  t.test("proofs that do not match are refused before the facilitator is called", async (t) => {
    const required = await requiredOf(`${shop.origin}/joke`);
    const { payload } = await proofFor(chain, payer, required);
    const settleCalls = shop.facilitator.settleCalls;
    const accepted = payload.accepted;
    const tampered: unknown[] = [
      { ...payload, accepted: { ...accepted, amount: "1" } },
      { ...payload, accepted: { ...accepted, payTo: payer.address } },
      { ...payload, accepted: { ...accepted, network: "eip155:1" } },
      { ...payload, accepted: undefined },
      { ...payload, x402Version: 3 },
      { ...payload, payload: "0x" },
      { x402Version: 1, scheme: "exact", network: "base", payload: payload.payload },
      [],
      null,
    ];
    const headers = [
      ...tampered.map((value) => encodePaymentSignatureHeader(value as PaymentPayload)),
      "not base64!",
      Buffer.from("{").toString("base64"),
    ];
    for (const header of headers) {
      const answer = await fetch(`${shop.origin}/joke`, {
        headers: { "payment-signature": header },
      });
      t.equal(answer.status, 402, header.slice(0, 20));
      const again = decodePaymentRequiredHeader(answer.headers.get("payment-required") ?? "");
      t.not(again.error, "Payment required");
    }
    t.equal(shop.facilitator.settleCalls, settleCalls);
  });

  t.test("an invalid request is refused before it is charged", async (t) => {
    const paying = wrapFetchWithPayment(fetch, stockClient(chain, payer));
    const post = (body: object) =>
      paying(`${shop.origin}/order`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
    const settleCalls = shop.facilitator.settleCalls;
    t.equal((await post({ size: "huge" })).status, 400);
    t.equal(shop.facilitator.settleCalls, settleCalls);
    const good = await post({ size: 3 });
    t.equal(good.status, 200);
    t.same(await good.json(), { size: 3 });
    t.equal(shop.facilitator.settleCalls, settleCalls + 1);
  });

  t.test("an error in prepare costs nothing; a failing handler leaves the receipt", async (t) => {
    const paying = wrapFetchWithPayment(fetch, stockClient(chain, other));
    const before = await balanceOf(chain, other.address);
    const unprepared = await paying(`${shop.origin}/unprepared`);
    t.equal(unprepared.status, 503);
    t.equal(await balanceOf(chain, other.address), before);
    const broken = await paying(`${shop.origin}/broken`);
    t.equal(broken.status, 500);
    t.equal(await balanceOf(chain, other.address), before - PRICE_ATOMIC);
    const receipt = decodePaymentResponseHeader(broken.headers.get("payment-response") ?? "");
    t.equal(receipt.success, true);
  });

  t.test("a payer without money gets a receipt with the reason", async (t) => {
    const poor = chain.accounts[5];
    if (!poor) throw new Error("no account");
    const paying = wrapFetchWithPayment(fetch, stockClient(chain, poor));
    const answer = await paying(`${shop.origin}/joke`);
    t.equal(answer.status, 402);
    const receipt = decodePaymentResponseHeader(answer.headers.get("payment-response") ?? "");
    t.match(receipt, { success: false, errorReason: /insufficient_balance/ });
  });

  t.test("a browser gets a page without inline script; other routes are untouched", async (t) => {
    const answer = await fetch(`${shop.origin}/joke`, {
      headers: { accept: "text/html,application/xhtml+xml,*/*;q=0.8" },
    });
    t.equal(answer.status, 402);
    t.type(answer.headers.get("payment-required"), "string");
    const html = await answer.text();
    t.match(html, "0.01 USDC");
    t.match(html, "A &lt;b&gt;&quot;joke&quot;&lt;/b&gt;");
    t.notMatch(html, /<script(?![^>]* src=)|style=|\son[a-z]+=/);
    for (const asset of ["pay.js", "look.css", "pay.css", "mark.svg", "geist.woff2"])
      t.equal((await fetch(`${shop.origin}/paywall/${asset}`)).status, 200);
    t.same(await (await fetch(`${shop.origin}/free`)).json(), { free: true });
  });
});

t.test("on a network with a version 1 name, a version 1 proof works", async (t) => {
  const usdc = "0x036CbD53842c5426634e7929541eC2318f3dCF7e";
  const chain = await testChain(t, { chainId: 84532, usdc });
  const [payer] = chain.accounts;
  if (!payer) throw new Error("no accounts");
  await chain.mint(payer.address, 1_000_000n);
  const shop = await joker(t, chain);
  const body = (await (await fetch(`${shop.origin}/joke`)).json()) as {
    x402Version: number;
    accepts: { network: string }[];
  };
  t.match(body, {
    x402Version: 1,
    accepts: [{ network: "base-sepolia", maxAmountRequired: "10000" }],
  });
  const { payload } = await proofFor(chain, payer, await requiredOf(`${shop.origin}/joke`));
  const v1 = { x402Version: 1, scheme: "exact", network: "base-sepolia", payload: payload.payload };
  const header = Buffer.from(JSON.stringify(v1)).toString("base64");
  const answer = await fetch(`${shop.origin}/joke`, { headers: { "x-payment": header } });
  t.equal(answer.status, 200);
  const receipt = decodePaymentResponseHeader(answer.headers.get("x-payment-response") ?? "");
  t.equal(receipt.success, true);
  t.equal((await fetch(`${shop.origin}/joke`, { headers: { "x-payment": header } })).status, 402);
});

t.test("if the facilitator fails, nothing is served and no outcome is claimed", async (t) => {
  const chain = await testChain(t);
  const [payer] = chain.accounts;
  if (!payer) throw new Error("no accounts");
  await chain.mint(payer.address, 1_000_000n);
  const working = referenceFacilitator(chain);
  let mode: "down" | "loses answers" | "refuses us" | "works" = "down";
  const remote = Fastify();
  remote.get("/supported", async (_request, reply) =>
    mode === "down" ? reply.code(500).send("down") : working.getSupported(),
  );
  remote.post("/settle", async (request, reply) => {
    if (mode === "refuses us") return reply.code(401).send({ success: false, code: "no_key" });
    const { paymentPayload, paymentRequirements } = request.body as {
      paymentPayload: PaymentPayload;
      paymentRequirements: PaymentRequirements;
    };
    const answer = await working.settle(paymentPayload, paymentRequirements);
    if (mode === "loses answers") return request.raw.destroy();
    return answer;
  });
  const url = await remote.listen({ host: "127.0.0.1", port: 0 });
  t.teardown(() => remote.close());
  const app = Fastify();
  let served = 0;
  await app.register(paywall, {
    facilitator: new HTTPFacilitatorClient({ url, timeoutMs: 5_000 }),
    networks: ["eip155:5042002"],
    payTo: payer.address,
  });
  app.get("/", { config: { paywall: { price: "0.01" } } }, async () => (served += 1));
  t.teardown(() => app.close());

  t.equal((await app.inject("/")).statusCode, 503, "unknown terms are not invented");
  mode = "works";
  const unpaid = await app.inject("/");
  t.equal(unpaid.statusCode, 402, "the next request tries again");
  const required = decodePaymentRequiredHeader(String(unpaid.headers["payment-required"]));
  const { headers } = await proofFor(chain, payer, required);
  mode = "refuses us";
  t.equal((await app.inject({ url: "/", headers })).statusCode, 502);
  mode = "loses answers";
  const lost = await app.inject({ url: "/", headers });
  t.equal(lost.statusCode, 502);
  t.match(lost.json<{ message: string }>().message, /not known/);
  t.equal(lost.headers["payment-response"], undefined);
  t.equal(served, 0);
});

t.test("networks that the facilitator does not support are not offered", async (t) => {
  const chain = await testChain(t);
  const app = Fastify();
  t.teardown(() => app.close());
  const facilitator = referenceFacilitator(chain);
  await app.register(paywall, { facilitator, networks: ["eip155:8453"], payTo: chain.usdc });
  app.get("/", { config: { paywall: { price: "0.01" } } }, async () => "sold");
  t.equal((await app.inject("/")).statusCode, 503);
  const unknown = Fastify();
  await t.rejects(
    async () => unknown.register(paywall, { facilitator, networks: ["eip155:7"], payTo: "0x" }),
    /does not know the network/,
  );
});

t.test("an invalid price is refused at startup", async (t) => {
  const options = { facilitator: "http://127.0.0.1:9", networks: ["eip155:84532"], payTo: "0x" };
  const secret = "s".repeat(32);
  await t.rejects(async () => {
    await Fastify().register(paywall, { ...options, mpp: { secret, realm: 'Joe "Jokes"' } });
  }, /realm/);
  const app = Fastify();
  await app.register(paywall, options);
  app.get("/joke", { config: { paywall: { price: "0.01" } } }, async () => ({}));
  const answer = await app.inject({ url: "/joke", headers: { host: "a b%" } });
  t.equal(answer.statusCode, 400, "a Host header that is not a host");
});

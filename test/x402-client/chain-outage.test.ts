// Goal: without a chain nothing is signed; a chain outage after the payment was sent leaves the outcome unknown, not wrong.
import t from "tap";
import { until } from "../helpers/until.ts";
import { assertLedgerIsChain, market } from "./market.ts";

t.test("the chain is unreachable", async (t) => {
  const made = await market(t);
  const { seller, chain } = made;
  const url = seller.url;

  await t.test("before signing: nothing is signed, free targets still answer", async (t) => {
    await chain.stop();
    await until(
      async () => (await made.fetch({ url })).body["code"] === "chain_unavailable",
      20_000,
    );
    t.equal(seller.proofs.length, 0);
    seller.script = { onUnpaid: ({ response }) => void response.end("free") };
    t.match(await made.fetch({ url }), { status: 200, body: { paid: false, text: "free" } });
    seller.script = {};
    await chain.start();
    await until(async () => (await made.fetch({ url })).status === 200, 30_000);
  });

  await t.test("after sending: unknown until the chain is back", async (t) => {
    seller.script = {
      onProof: async ({ response, proof }) => {
        await seller.settle(proof);
        chain.freeze();
        response.writeHead(200).end("data");
      },
    };
    const key = { "idempotency-key": "outage" };
    const unknown = await made.fetch({ url, timeoutMs: 20_000 }, key);
    t.match(unknown, { status: 504, body: { code: "payment_status_unknown", text: "data" } });
    chain.thaw();
    // The stored first response is returned, not the seller's new one.
    seller.script = { onProof: ({ response }) => void response.writeHead(200).end("data again") };
    await until(async () => (await made.lastPayment())?.["status"] === "settled", 30_000);
    t.match(await made.fetch({ url, timeoutMs: 20_000 }, key), {
      status: 200,
      body: { paid: true, text: "data", paymentId: unknown.body["paymentId"] },
    });
  });

  await t.test("during an outage a failed payment is voided only with proof", async (t) => {
    seller.script = {
      onProof: ({ response }) => {
        chain.freeze();
        response.writeHead(500).end();
      },
    };
    const key = { "idempotency-key": "no cancel" };
    const unknown = await made.fetch({ url, timeoutMs: 2_000 }, key);
    t.match(unknown, { status: 504, body: { code: "payment_status_unknown" } });
    t.equal(await made.reserved(), "0.001", "the budget stays reserved");
    chain.thaw();
    await until(async () => (await made.lastPayment())?.["status"] === "voided", 30_000);
    t.equal(await made.reserved(), "0");
    t.match(await made.fetch({ url, timeoutMs: 2_000 }, key), {
      status: 502,
      body: {
        code: "upstream_error",
        paid: false,
        paymentId: unknown.body["paymentId"],
        thirdParty: { status: 500 },
      },
    });
  });

  await assertLedgerIsChain(t, made);
});

// Goal: any JSON body gets a protocol response with status 200; only invalid JSON, too deep or too large bodies and
// other media types are HTTP errors.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { post, signedPayment } from "./payments.ts";

const BODIES: [unknown, string][] = [
  [{}, "invalid_payload"],
  [[], "invalid_payload"],
  [null, "invalid_payload"],
  ["text", "invalid_payload"],
  [7, "invalid_payload"],
  [{ x402Version: 2 }, "invalid_payload"],
  [{ x402Version: 2, paymentPayload: {} }, "invalid_payload"],
  [{ x402Version: 2, paymentPayload: [], paymentRequirements: {} }, "invalid_payload"],
  [{ x402Version: 2, paymentPayload: {}, paymentRequirements: {} }, "invalid_payload"],
  [{ x402Version: 3, paymentPayload: {}, paymentRequirements: {} }, "invalid_x402_version"],
  [{ x402Version: "2", paymentPayload: {}, paymentRequirements: {} }, "invalid_x402_version"],
  [
    { x402Version: 2, paymentPayload: { x402Version: 1 }, paymentRequirements: {} },
    "invalid_x402_version",
  ],
  [
    {
      x402Version: 2,
      paymentPayload: { accepted: {}, payload: { authorization: {} } },
      paymentRequirements: {},
    },
    "invalid_exact_evm_scheme",
  ],
  [
    {
      x402Version: 2,
      paymentPayload: { accepted: {}, payload: { authorization: "x" } },
      paymentRequirements: {},
    },
    "invalid_payload",
  ],
  [{ x402Version: 1, paymentPayload: { payload: 1 }, paymentRequirements: {} }, "invalid_payload"],
];

t.test("garbage", async (t) => {
  const { app, chain } = await testApp(t);

  for (const [body, reason] of BODIES) {
    await t.test(JSON.stringify(body), async (t) => {
      const verified = await post(app, "verify", body);
      t.match(verified, { isValid: false, invalidReason: reason, invalidMessage: /./, error: /./ });
      const settled = await post(app, "settle", body);
      t.match(settled, {
        success: false,
        errorReason: reason,
        errorMessage: /./,
        error: /./,
        transaction: "",
        txHash: "",
      });
      t.type(settled["network"], "string");
    });
  }

  await t.test("HTTP errors are only about HTTP", async (t) => {
    const send = (payload: string, type = "application/json") =>
      app.inject({
        method: "POST",
        url: "/api/x402/verify",
        headers: { "content-type": type },
        payload,
      });
    t.equal((await send("{")).statusCode, 400);
    t.equal((await send("")).statusCode, 400);
    t.equal((await send("{}", "text/plain")).statusCode, 415);
    t.equal((await send("x=1", "application/x-www-form-urlencoded")).statusCode, 415);
    t.equal((await send(JSON.stringify({ a: "x".repeat(300_000) }))).statusCode, 413);
    const key = await app.inject({
      method: "POST",
      url: "/api/x402/settle",
      headers: { "content-type": "application/json", "idempotency-key": "x".repeat(256) },
      payload: "{}",
    });
    t.equal(key.statusCode, 400);
    t.equal(key.json().code, "idempotency_key_invalid");
  });

  await t.test("large discovery schemas and unknown fields are accepted", async (t) => {
    const payer = privateKeyToAccount(generatePrivateKey());
    await chain.mint(payer.address, 1_000_000n);
    const body = await signedPayment({
      chain,
      payer,
      payTo: chain.admin.address,
      extensions: { bazaar: { info: {}, schema: { description: "x".repeat(100_000) } } },
    });
    t.match(await post(app, "verify", { ...body, unknown: { a: 1 } }), { isValid: true });
  });

  await t.test("an unreachable chain is not a verdict on the payment", async (t) => {
    const payer = privateKeyToAccount(generatePrivateKey());
    const body = await signedPayment({ chain, payer, payTo: chain.admin.address });
    await chain.stop();
    t.match(await post(app, "verify", body), {
      isValid: false,
      invalidReason: "unexpected_verify_error",
    });
    t.match(await post(app, "settle", body), {
      success: false,
      errorReason: "unexpected_settle_error",
      transaction: "",
    });
    await chain.start();
    t.match(await post(app, "verify", body), {
      isValid: false,
      invalidReason: "invalid_exact_evm_insufficient_balance",
    });
  });
});

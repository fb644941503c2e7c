// Goal: one payment moves money once and returns success once, however often, from wherever and with whatever key
// it is posted.
import t from "tap";
import type { Address } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { post, signedPayment } from "./payments.ts";

const balance = ({ chain }: TestApp, account: Address): Promise<bigint> => chain.usdcOf(account);

t.test("settle", async (t) => {
  const one = await testApp(t);
  const two = await testApp(t, { database: one.database, chain: one.chain });
  const { chain } = one;
  const payer = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, 1_000_000_000n);
  const newPayee = (): Address => privateKeyToAccount(generatePrivateKey()).address;
  const make = (payTo: Address, extensions?: Record<string, unknown>) =>
    signedPayment({ chain, payer, payTo, ...(extensions && { extensions }) });
  const twentyTimes = <T>(use: (app: TestApp["app"]) => Promise<T>): Promise<T[]> =>
    Promise.all(Array.from({ length: 20 }, (_, index) => use(index % 2 === 0 ? one.app : two.app)));

  await t.test("without an earlier verify, the response has both sets of names", async (t) => {
    const payTo = newPayee();
    const answer = await post(one.app, "settle", await make(payTo));
    t.match(answer, {
      success: true,
      txHash: /^0x[0-9a-f]{64}$/,
      network: `eip155:${chain.chainId}`,
      payer: payer.address,
      amount: "1000",
      paymentId: /^pay_/,
    });
    t.equal(answer["transaction"], answer["txHash"]);
    t.equal(await balance(one, payTo), 1000n);
    const receipt = await chain.publicClient.getTransactionReceipt({
      hash: answer["txHash"] as `0x${string}`,
    });
    t.equal(receipt.status, "success");
    const state = await two.app.inject(`/api/x402/payments/${String(answer["paymentId"])}`);
    t.match(state.json(), { status: "settled", txHash: answer["txHash"] });
    t.equal((await one.app.inject("/api/x402/payments/pay_none")).statusCode, 404);
  });

  await t.test("20 in parallel from two processes: one transfer, one success", async (t) => {
    const payTo = newPayee();
    const body = await make(payTo);
    const answers = await twentyTimes((app) => post(app, "settle", body));
    const successes = answers.filter(({ success }) => success === true);
    t.equal(successes.length, 1);
    const hash = successes[0]?.["txHash"];
    for (const answer of answers.filter(({ success }) => success !== true)) {
      t.match(answer, { errorReason: "duplicate_settlement", transaction: hash, txHash: hash });
    }
    t.equal(await balance(one, payTo), 1000n);
    const later = await post(two.app, "settle", body);
    t.match(later, { success: false, errorReason: "duplicate_settlement", transaction: hash });
  });

  await t.test("20 in parallel with one Idempotency-Key: the same response for all", async (t) => {
    const payTo = newPayee();
    const body = await make(payTo);
    const headers = { "idempotency-key": "order 77" };
    const answers = await twentyTimes((app) => post(app, "settle", body, headers));
    for (const answer of answers) t.same(answer, answers[0]);
    t.equal(answers[0]?.["success"], true);
    t.equal(await balance(one, payTo), 1000n);
    t.same(await post(two.app, "settle", body, headers), answers[0], "also later");
    t.match(await post(two.app, "settle", body), { errorReason: "duplicate_settlement" });
    t.match(await post(two.app, "settle", body, { "idempotency-key": "order 78" }), {
      errorReason: "duplicate_settlement",
    });
  });

  await t.test("a payment identifier is chosen by the payer, and proves nothing", async (t) => {
    const payTo = newPayee();
    const body = await make(payTo, {
      "payment-identifier": { info: { required: false, id: "pay_7d5d747be160e280504c" } },
    });
    const answers = await twentyTimes((app) => post(app, "settle", body));
    t.equal(answers.filter((answer) => answer["success"] === true).length, 1, "one success");
    for (const answer of answers.filter(({ success }) => success !== true))
      t.match(answer, { errorReason: "duplicate_settlement" });
    t.match(
      await post(two.app, "settle", body),
      { errorReason: "duplicate_settlement" },
      "later too",
    );
    t.equal(await balance(one, payTo), 1000n);
  });

  await t.test("a nonce alone proves nothing", async (t) => {
    const payTo = newPayee();
    const body = await make(payTo);
    await post(one.app, "settle", body, { "idempotency-key": "mine" });
    const { payload } = body.paymentPayload as { payload: { authorization: { nonce: string } } };
    const forged = await signedPayment({
      chain,
      payer,
      payTo,
      nonce: payload.authorization.nonce as `0x${string}`,
      signer: privateKeyToAccount(generatePrivateKey()),
      validBefore: "99999999999",
    });
    t.match(await post(one.app, "settle", forged), { errorReason: "invalid_exact_evm_signature" });
    const resigned = await signedPayment({
      chain,
      payer,
      payTo,
      nonce: payload.authorization.nonce as `0x${string}`,
      validBefore: "99999999999",
    });
    t.match(await post(one.app, "settle", resigned), {
      success: false,
      errorReason: "invalid_exact_evm_nonce_already_used",
    });
  });
});

t.test("a wait that is too long returns pending, and a repeat returns the outcome", async (t) => {
  const { app, chain } = await testApp(t, { env: { SETTLE_WAIT_MS: "300" } });
  const payer = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, 1_000_000n);
  await chain.testClient.setAutomine(false);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const body = await signedPayment({ chain, payer, payTo });
  const pending = await post(app, "settle", body);
  t.match(pending, {
    success: false,
    errorReason: "settlement_pending",
    transaction: /^0x[0-9a-f]{64}$/,
    paymentId: /^pay_/,
  });
  await chain.testClient.setAutomine(true);
  await chain.testClient.mine({ blocks: 1 });
  const answers = [];
  for (let attempt = 0; attempt < 40; attempt += 1) {
    const answer = await post(app, "settle", body);
    answers.push(answer);
    if (answer["errorReason"] !== "settlement_pending") break;
  }
  t.match(answers.at(-1), { success: true, transaction: pending["transaction"] });
  t.match(await post(app, "settle", body), { errorReason: "duplicate_settlement" });
});

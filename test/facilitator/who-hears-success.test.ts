// Goal: success reaches the caller that may have it, also after a lost answer, and nobody can earn with a signature that is already public.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import type { Hex } from "viem";
import { inTransaction } from "../../server/infra/db/pool.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { post, signedPayment, type Body } from "./payments.ts";

type Authorization = Record<
  "from" | "to" | "value" | "validAfter" | "validBefore" | "nonce",
  string
>;

/** The payment as an agent of ours would have stored it before its proof left the house. */
async function acceptAsOurs(
  { app, chain }: TestApp,
  body: Body,
  kind: "spend" | "x402",
  id: string,
): Promise<void> {
  const { authorization, signature } = body.paymentPayload["payload"] as {
    authorization: Authorization;
    signature: Hex;
  };
  await inTransaction(app.pool, (sql) =>
    app.settlement.accept(sql, {
      id,
      kind,
      agentId: "agt_test",
      relay: kind === "spend",
      authorization: {
        chainId: chain.chainId,
        asset: chain.usdc,
        from: authorization.from as Hex,
        to: authorization.to as Hex,
        value: BigInt(authorization.value),
        validAfter: BigInt(authorization.validAfter),
        validBefore: BigInt(authorization.validBefore),
        nonce: authorization.nonce as Hex,
        signature,
      },
    }),
  );
}

t.test("who hears success", async (t) => {
  const world = await testApp(t);
  const { app, chain } = world;
  const payer: PrivateKeyAccount = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, 1_000_000n);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const make = (): Promise<Body> => signedPayment({ chain, payer, payTo });

  await t.test("an answer lost with a key is there for a retry with the key", async (t) => {
    const body = await make();
    const lost = await app.facilitator.settle(body, { idempotencyKey: "k", isGone: () => true });
    t.not(lost.success, true, "nobody was there to hear it");
    t.match(await post(app, "settle", body), { errorReason: "duplicate_settlement" });
    const headers = { "idempotency-key": "k" };
    const answer = await post(app, "settle", body, headers);
    t.match(answer, { success: true, transaction: lost.transaction });
    t.same(await post(app, "settle", body, headers), answer);
  });

  await t.test("an answer lost without a key is told once more, to one", async (t) => {
    const body = await make();
    await app.facilitator.settle(body, { isGone: () => true });
    const answers = await Promise.all(Array.from({ length: 10 }, () => post(app, "settle", body)));
    t.equal(answers.filter(({ success }) => success === true).length, 1);
  });

  await t.test("an agent's own payment is attached, not paid twice", async (t) => {
    const body = await make();
    await acceptAsOurs(world, body, "x402", "pay_own_x402");
    const answer = await post(app, "settle", body);
    t.match(answer, { success: true, paymentId: "pay_own_x402" });
    t.match(await post(app, "settle", body), {
      success: false,
      errorReason: "duplicate_settlement",
      transaction: answer["transaction"],
    });
  });

  await t.test("a spend's signature buys nothing, though it is public on chain", async (t) => {
    const body = await make();
    await acceptAsOurs(world, body, "spend", "pay_own_spend");
    const outcome = await app.settlement.wait("pay_own_spend", 10_000);
    t.equal(outcome.status, "settled");
    t.match(await post(app, "settle", body), {
      success: false,
      errorReason: "duplicate_settlement",
      transaction: /^0x/,
    });
    t.equal((await app.inject("/api/x402/payments/pay_own_spend")).statusCode, 404);
  });

  await t.test("a payment made elsewhere before buys nothing here", async (t) => {
    const elsewhere = await testApp(t, { chain, env: { RELAYER_PRIVATE_KEYS: keyOf(chain) } });
    const body = await make();
    t.match(await post(elsewhere.app, "settle", body), { success: true });
    t.match(await post(app, "settle", body), {
      success: false,
      errorReason: "invalid_exact_evm_nonce_already_used",
    });
  });
});

const keyOf = (chain: TestApp["chain"]): string => {
  const [account] = chain.accounts;
  if (!account) throw new Error("no account");
  return account.privateKey;
};

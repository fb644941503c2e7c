// Goal: any part of a signed maximum is charged, once, and only by the account that the payer named.
import t from "tap";
import type { Address, Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { approvePermit2, UPTO_PROXY } from "../helpers/permit2.ts";
import { change } from "./bent-payments.ts";
import { permit2Payment, sponsoring } from "./permit2-payments.ts";
import { post, type Body } from "./payments.ts";

const newAccount = () => privateKeyToAccount(generatePrivateKey());
const charging = (body: Body, amount: bigint): Body =>
  change(body, "paymentRequirements.amount", amount.toString());

t.test("upto", async (t) => {
  const one = await testApp(t, { listen: true });
  const two = await testApp(t, { database: one.database, chain: one.chain });
  const { chain } = one;
  const facilitator = chain.relayer.address;
  const payer = newAccount();
  await chain.mint(payer.address, 1_000_000n);
  await approvePermit2(chain, [payer]);
  const balanceOf = (account: Address) => chain.usdcOf(account);
  const make = (payTo: Address, amount = 50_000n, more = {}) =>
    permit2Payment({ chain, payer, payTo, facilitator, amount, ...more });
  const everywhere = <T>(use: (app: TestApp["app"]) => Promise<T>): Promise<T[]> =>
    Promise.all(Array.from({ length: 20 }, (_, index) => use(index % 2 === 0 ? one.app : two.app)));

  await t.test("is announced with the account that settles it", async (t) => {
    const supported = (await one.app.inject("/api/x402/supported")).json<{
      kinds: { scheme: string; x402Version: number; extra?: object }[];
      signers: Record<string, string[]>;
    }>();
    const kinds = supported.kinds.filter(({ scheme }) => scheme === "upto");
    t.ok(kinds.every(({ x402Version }) => x402Version === 2));
    t.match(kinds[0]?.extra, { facilitatorAddress: facilitator });
    t.ok(supported.signers["eip155:*"]?.includes(facilitator));
  });

  await t.test("20 in parallel from two processes: the used amount is charged once", async (t) => {
    const payTo = newAccount().address;
    const body = await make(payTo);
    t.match(await post(one.app, "verify", body), { isValid: true, amount: "50000" });
    const charge = charging(body, 12_345n);
    const answers = await everywhere((app) => post(app, "settle", charge));
    const successes = answers.filter(({ success }) => success === true);
    t.equal(successes.length, 1);
    t.match(successes[0], { amount: "12345", payer: payer.address });
    for (const answer of answers.filter(({ success }) => success !== true))
      t.match(answer, {
        errorReason: "duplicate_settlement",
        transaction: successes[0]?.["txHash"],
      });
    t.equal(await balanceOf(payTo), 12_345n);
    const { from, to } = await chain.publicClient.getTransaction({
      hash: successes[0]?.["txHash"] as Hex,
    });
    t.same(
      [from, to].map((address) => address?.toLowerCase()),
      [facilitator, UPTO_PROXY].map((address) => address.toLowerCase()),
      "in a transaction of its own, from the named account",
    );
    t.match(
      await post(two.app, "settle", charging(body, 20_000n)),
      { success: false, errorReason: "permit2_invalid_nonce" },
      "the rest of the maximum cannot be charged",
    );
    t.equal(await balanceOf(payTo), 12_345n);
  });

  await t.test("the maximum, zero, and more than the maximum", async (t) => {
    const payTo = newAccount().address;
    const body = await make(payTo);
    t.match(await post(one.app, "settle", charging(body, 50_001n)), {
      success: false,
      errorReason: "invalid_upto_evm_payload_settlement_exceeds_amount",
      transaction: "",
    });
    t.match(await post(one.app, "settle", charging(body, 0n)), {
      success: true,
      transaction: "",
      amount: "0",
    });
    t.equal(await balanceOf(payTo), 0n, "no transaction for zero");
    t.match(await post(one.app, "settle", body), { success: true, amount: "50000" });
    t.equal(await balanceOf(payTo), 50_000n);
    t.match(await post(one.app, "verify", charging(body, 0n)), { isValid: false });
  });

  await t.test("another account is refused with its own code", async (t) => {
    const body = await make(newAccount().address, 1_000n, { facilitator: chain.admin.address });
    for (const operation of ["verify", "settle"] as const) {
      const answer = await post(one.app, operation, body);
      t.equal(answer["invalidReason"] ?? answer["errorReason"], "upto_facilitator_mismatch");
    }
  });

  await t.test("50 in parallel", async (t) => {
    const payTo = newAccount().address;
    const accounts = Array.from({ length: 50 }, newAccount);
    await chain.mint(
      accounts.map(({ address }) => address),
      10_000n,
    );
    const bodies = await Promise.all(
      accounts.map(async (account) =>
        permit2Payment({
          chain,
          payer: account,
          payTo,
          facilitator,
          amount: 10_000n,
          extensions: await sponsoring(chain, account, { amount: 10_000n }),
        }),
      ),
    );
    const headers = (index: number) => ({ "idempotency-key": `call ${index}` });
    const settle = async (body: Body, index: number) => {
      const charge = charging(body, 1_000n + BigInt(index));
      for (;;) {
        const answer = await post(one.app, "settle", charge, headers(index));
        if (answer["errorReason"] !== "settlement_pending") return answer;
      }
    };
    const answers = await Promise.all(bodies.map(settle));
    t.ok(
      answers.every(({ success }) => success === true),
      JSON.stringify(answers.find(({ success }) => success !== true)),
    );
    t.equal(await balanceOf(payTo), 50_000n + 1_225n);
  });
});

t.test("two lanes: the named account sends, whichever process holds its lane", async (t) => {
  const second = testAccount(2);
  const one = await testApp(t, {});
  const { chain } = one;
  const two = await testApp(t, {
    timings: { balanceFreshMs: 0 },
    database: one.database,
    chain,
    env: { RELAYER_PRIVATE_KEYS: `${chain.relayerPrivateKey},${second.privateKey}` },
  });
  const payer = newAccount();
  await chain.mint(payer.address, 1_000_000n);
  await approvePermit2(chain, [payer]);
  for (const account of [chain.relayer, second]) {
    const payTo = newAccount().address;
    const body = await permit2Payment({
      chain,
      payer,
      payTo,
      facilitator: account.address,
      amount: 9_000n,
    });
    // The first process holds the lane of the first key; the request goes to the second process.
    const answer = await post(two.app, "settle", charging(body, 4_000n));
    t.match(answer, { success: true, amount: "4000" });
    const { from } = await chain.publicClient.getTransaction({ hash: answer["txHash"] as Hex });
    t.equal(from.toLowerCase(), account.address.toLowerCase());
  }
  await chain.testClient.setBalance({ address: second.address, value: 0n });
  const poor = await permit2Payment({
    chain,
    payer,
    payTo: newAccount().address,
    facilitator: second.address,
  });
  const answer = await post(two.app, "settle", poor);
  t.match(answer, { success: false, errorReason: "unexpected_settle_error" });
  t.match(answer["errorMessage"], /cannot pay for gas/, "not accepted for a lane without gas");
});

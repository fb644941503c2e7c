// Goal: claims, settles and refunds of payment channels happen once and to the end, alone and many at once, whoever else
// sends them, and we sign them only for the merchant whose channels they are.
import t from "tap";
import type { Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { AMPLE_GAS, testApp } from "../helpers/app.ts";
import { CHANNELS, CHANNELS_ABI, signClaims, signVoucher } from "../helpers/batch-settlement.ts";
import { testChain } from "../helpers/chain.ts";
import { differingGasAccounts } from "../helpers/gas-accounts.ts";
import { signIn } from "../helpers/owner.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";
import { send } from "../merchants/world.ts";
import { channelWorld, account, type OpenChannel, type Seller } from "./channel-bodies.ts";
import { post, type Body } from "./payments.ts";

const HASH = /^0x[0-9a-f]{64}$/;
const reason = (name: string) => `invalid_batch_settlement_evm_${name}`;

t.test("orders", async (t) => {
  const chain = await testChain(t);
  const authorizerKey = generatePrivateKey();
  const ours = privateKeyToAccount(authorizerKey);
  const boss = account();
  const env = {
    [`GAS_BUDGET_${chain.chainId}`]: AMPLE_GAS,
    RECEIVER_AUTHORIZER_KEY: authorizerKey,
    MERCHANTS: boss.address,
  };
  const one = await testApp(t, { chain, env });
  const two = await testApp(t, { chain, env, database: one.database });
  const { app } = one;
  const world = channelWorld(chain);
  const settle = (body: Body, headers = {}) => post(app, "settle", body, headers);

  await t.test(
    "claims of many sellers at once share transactions; a bad one fails alone",
    async (t) => {
      t.teardown(() => chain.testClient.setAutomine(true));
      const sellers = Array.from({ length: 12 }, () => world.seller());
      const opened: OpenChannel[] = [];
      for (const seller of sellers) opened.push(await world.open(seller));
      const bodies = await Promise.all(
        sellers.map((seller, index) =>
          world.claim([
            {
              channel: opened[index] as OpenChannel,
              total: 700n,
              ...(index === 5 && { ceiling: 699n }),
            },
          ]),
        ),
      );
      await chain.testClient.setAutomine(false);
      const answers = bodies.map((body) => settle(body));
      const mining = setInterval(() => void chain.testClient.mine({ blocks: 1 }), 300);
      const done = await Promise.all(answers);
      clearInterval(mining);
      await chain.testClient.setAutomine(true);
      const bad = done.splice(5, 1)[0];
      t.match(bad, {
        success: false,
        errorReason: reason("claim_simulation_failed"),
        transaction: "",
      });
      t.match(String(bad?.["errorMessage"]), new RegExp(`ClaimExceedsCeiling.*${opened[5]?.id}`));
      t.ok(
        done.every(
          ({ success, transaction }) => success === true && HASH.test(String(transaction)),
        ),
      );
      t.ok(new Set(done.map(({ transaction }) => transaction)).size < done.length, "shared");
      for (const [index, channel] of opened.entries())
        t.equal((await world.stateOf(channel)).claimed, index === 5 ? 0n : 700n);
    },
  );

  await t.test(
    "the same claim from two processes at once is sent once, and repeated for nothing",
    async (t) => {
      const seller = world.seller();
      const channel = await world.open(seller);
      const body = await world.claim([{ channel, total: 500n }]);
      const answers = await Promise.all(
        Array.from({ length: 8 }, (_, index) => post(index % 2 ? app : two.app, "settle", body)),
      );
      t.ok(answers.every(({ success }) => success === true));
      const hashes = new Set(answers.map(({ transaction }) => transaction));
      hashes.delete("");
      t.equal(hashes.size, 1);
      t.match(
        await settle(body),
        { success: true, transaction: "" },
        "there is nothing left to claim",
      );
      t.equal((await world.stateOf(channel)).claimed, 500n);
    },
  );

  await t.test("the largest claim fits into its transaction", async (t) => {
    const seller = world.seller();
    const charges = [];
    for (let row = 0; row < (isFullTier ? 100 : 20); row += 1)
      charges.push({ channel: await world.open(seller), total: 500n });
    t.match(await settle(await world.claim(charges)), { success: true, transaction: HASH });
    for (const { channel } of charges) t.equal((await world.stateOf(channel)).claimed, 500n);
  });

  await t.test("a settle that is posted with its claim pays the claim out", async (t) => {
    const seller = world.seller();
    const channel = await world.open(seller);
    t.match(await settle(world.settle(seller)), {
      success: false,
      errorReason: reason("nothing_to_settle"),
    });
    const claiming = settle(await world.claim([{ channel, total: 400n }]));
    await until(async () => {
      const { rowCount } = await one.database.pool.query(
        "SELECT 1 FROM settlements WHERE from_address = $1",
        [seller.receiver.toLowerCase()],
      );
      return rowCount === 1;
    });
    const [claimed, settled] = await Promise.all([
      claiming,
      post(two.app, "settle", world.settle(seller)),
    ]);
    t.match(claimed, { success: true, transaction: HASH });
    t.match(settled, { success: true, transaction: HASH, amount: "400" });
    t.equal(await chain.usdcOf(seller.receiver), 400n);
  });

  await t.test("a part that the receiver claims itself is no obstacle", async (t) => {
    const seller = world.seller();
    const [big, small] = [await world.open(seller), await world.open(seller)];
    const rows = await Promise.all(
      [big, small].map(async (channel, index) => {
        const total = index === 0 ? 900n : 100n;
        const signature = await signVoucher(chain, channel.payer, channel.id, total);
        return {
          voucher: { channel: channel.config, maxClaimableAmount: total },
          signature,
          totalClaimed: total,
        };
      }),
    );
    const alone = rows.slice(0, 1);
    const hash = await world.depositor.writeContract({
      address: CHANNELS,
      abi: CHANNELS_ABI,
      functionName: "claimWithSignature",
      args: [alone, await signClaims(chain, seller.authorizer, alone)],
    });
    await chain.publicClient.waitForTransactionReceipt({ hash });
    const both = await world.claim([
      { channel: big, total: 900n },
      { channel: small, total: 100n },
    ]);
    t.match(await settle(both), { success: true, transaction: HASH });
    t.equal((await world.stateOf(small)).claimed, 100n);
    t.match(await settle(world.settle(seller)), { success: true, amount: "1000" });
  });

  await t.test("a refund with its claims; what is left stays for the payer", async (t) => {
    const seller = world.seller();
    const channel = await world.open(seller);
    const charges = [{ channel, total: 3_000n }];
    const body = await world.refund(channel, { amount: 7_000n, charges });
    t.match(await settle(body), {
      success: true,
      transaction: HASH,
      payer: channel.payer.address,
      amount: "7000",
      extra: {
        channelState: {
          channelId: channel.id,
          balance: "3000",
          totalClaimed: "3000",
          refundNonce: "1",
        },
      },
    });
    t.equal(await chain.usdcOf(channel.payer.address), 7_000n);
    t.match(await settle(body), { success: true, amount: "7000" }, "the same answer again");
    const next = await world.refund(channel, { amount: 1_000n, nonce: 1n });
    t.match(await settle(next), { success: false, errorReason: reason("refund_no_balance") });
  });

  await t.test(
    "a refund that the payer takes out of its transaction leaves the claims to us",
    async (t) => {
      const seller = world.seller();
      const channel = await world.open(seller);
      const charges = [{ channel, total: 3_000n }];
      const body = await world.refund(channel, { amount: 7_000n, charges });
      const { refundAuthorizerSignature } = body.paymentPayload["payload"] as Record<string, Hex>;
      await chain.testClient.setAutomine(false);
      const answer = settle(body);
      await until(async () => {
        const { rowCount } = await one.database.pool.query(
          "SELECT 1 FROM settlements WHERE from_address = $1 AND status = 'submitted'",
          [channel.payer.address.toLowerCase()],
        );
        return rowCount === 1;
      });
      const tip = 10n ** 12n;
      await world.depositor.writeContract({
        address: CHANNELS,
        abi: CHANNELS_ABI,
        functionName: "refundWithSignature",
        args: [channel.config, 7_000n, 0n, refundAuthorizerSignature as Hex],
        gas: 300_000n,
        maxPriorityFeePerGas: tip,
        maxFeePerGas: 2n * tip,
      });
      const mining = setInterval(() => void chain.testClient.mine({ blocks: 1 }), 200);
      t.match(await answer, { success: true, transaction: HASH, amount: "7000" });
      await until(async () => (await world.stateOf(channel)).claimed === 3_000n, 15_000);
      clearInterval(mining);
      await chain.testClient.setAutomine(true);
      t.equal(await chain.usdcOf(channel.payer.address), 7_000n);
    },
  );

  await t.test("signed by us for a merchant, for its own channels only", async (t) => {
    const owner = await signIn(one, boss);
    const made = await send(one, owner, "POST", "/api/merchant/keys", { label: "shop" });
    const headers = { authorization: `Bearer ${String(made.body["apiKey"])}` };
    const supported = await app.inject("/api/x402/supported");
    t.match(
      supported
        .json()
        .kinds.find(({ scheme }: { scheme: string }) => scheme === "batch-settlement"),
      {
        extra: { receiverAuthorizer: ours.address },
      },
    );
    const mine: Seller = { receiver: boss.address, authorizer: ours };
    const channel = await world.open(mine);
    const charges = [{ channel, total: 2_000n }];
    const claim = await world.claim(charges, false);
    t.match(await settle(claim), { errorReason: reason("authorizer_not_configured") }, "no key");
    const other: Seller = { receiver: account().address, authorizer: ours };
    const foreign = await world.open(other);
    for (const body of [
      await world.claim([{ channel: foreign, total: 1n }], false),
      await world.claim([...charges, { channel: foreign, total: 1n }], false),
      await world.refund(foreign, { amount: 10_000n, isSigned: false }),
    ])
      t.match(await settle(body, headers), {
        success: false,
        errorReason: reason("authorizer_not_configured"),
      });
    const stranger = world.seller();
    const theirs = await world.open(stranger);
    t.match(await settle(await world.claim([{ channel: theirs, total: 1n }], false), headers), {
      errorReason: reason("authorizer_address_mismatch"),
    });
    t.match(
      await settle(await world.refund(channel, { amount: 10_000n, isSigned: false }), {}),
      { success: false, errorReason: reason("authorizer_not_configured") },
      "the payer cannot have its deposit back",
    );
    t.match(await settle(claim, headers), { success: true, transaction: HASH });
    const more = [{ channel, total: 2_500n }];
    const refund = await world.refund(channel, {
      amount: 10_000n,
      charges: more,
      isSigned: false,
    });
    t.match(
      await settle(refund, headers),
      { success: true, amount: "7500" },
      "cut to what is left",
    );
    t.match(await world.stateOf(channel), { balance: 2_500n, claimed: 2_500n });
  });

  await t.test("no gas is charged to the contract, and none stays reserved", async (t) => {
    const { rows } = await one.database.pool.query<{ account: string }>(
      "SELECT DISTINCT unnest(gas_accounts) AS account FROM settlements",
    );
    const accounts = rows.map(({ account }) => account);
    t.ok(accounts.length > 10);
    t.notOk(accounts.includes(`payee:${CHANNELS.toLowerCase()}`));
    await until(async () => (await differingGasAccounts(one.database.pool)).length === 0);
  });
});

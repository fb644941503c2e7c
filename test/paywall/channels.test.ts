// Goal: through a payment channel each request is charged once and never above its price, and the seller gets exactly what
// it charged, whatever the payer sends and whenever it leaves.
import { encodePaymentSignatureHeader } from "@x402/core/http";
import { HTTPFacilitatorClient } from "@x402/core/server";
import type { PaymentPayload, PaymentRequired, SettleResponse } from "@x402/core/types";
import { wrapFetchWithPayment } from "@x402/fetch";
import t from "tap";
import type { Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { cashier, paidTool } from "../../packages/paywall/src/mcp.ts";
import { OneProcessChannelStore, type ChannelStore } from "../../packages/paywall/src/paywall.ts";
import { testApp } from "../helpers/app.ts";
import { CHANNELS, CHANNELS_ABI, signVoucher } from "../helpers/batch-settlement.ts";
import { testChain } from "../helpers/chain.ts";
import { signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { send } from "../merchants/world.ts";
import {
  channelPayer,
  get,
  DEPOSIT,
  onChain,
  openChannelShop,
  PRICE,
  receiptOf,
  requiredOf,
} from "./channel-shop.ts";
import { newAccount, openShop, stockPayer } from "./shop.ts";

const chain = await testChain(t);
const merchant = newAccount();
const ours = generatePrivateKey();
const env = { RECEIVER_AUTHORIZER_KEY: ours, MERCHANTS: merchant.address };
const our = await testApp(t, { listen: true, chain, env });
const facilitator = `${our.baseUrl}/api/x402`;
const store = new OneProcessChannelStore();
const authorizer = newAccount();
const shop = await openChannelShop(t, chain, {
  facilitator,
  store,
  authorizer,
  options: { mpp: { secret: "m".repeat(32) } },
});
const { origin, payTo, worked, gate } = shop;
const url = `${origin}/words`;
const claims = () => {
  const { claims: found } = shop.app.cashier;
  if (!found) throw new Error("the shop has no channels");
  return found;
};
const wrong = (name: string) => `invalid_batch_settlement_evm_${name}`;
const record = async (id: Hex, from: ChannelStore = store) => {
  const stored = await from.find(id.toLowerCase() as Hex);
  if (!stored) throw new Error(`no channel ${id}`);
  return stored;
};
const idIn = (payload: PaymentPayload) =>
  (payload.payload["voucher"] as { channelId: Hex }).channelId;

t.test("one 402 offers the channel first, and what else the route takes", async (t) => {
  const answer = await get(url);
  t.equal(answer.status, 402);
  t.match(requiredOf(answer).accepts, [
    {
      scheme: "batch-settlement",
      amount: "1000",
      payTo,
      extra: {
        name: "USDC",
        version: "2",
        receiverAuthorizer: /^0x/,
        withdrawDelay: 900,
        minDeposit: String(DEPOSIT),
      },
    },
    { scheme: "exact", amount: "2000" },
  ]);
  t.match(answer.headers.get("www-authenticate"), /^Payment /);
  t.match(((await answer.json()) as { accepts: object[] }).accepts, [{ scheme: "exact" }]);
  t.notMatch(
    JSON.stringify(requiredOf(await get(`${origin}/plain`))),
    "batch-settlement",
    "only where it is asked for",
  );

  const before = await chain.usdcOf(payTo);
  const payer = newAccount();
  await chain.mint(payer.address, 10_000n);
  const paid = await wrapFetchWithPayment(get, stockPayer(chain, payer))(`${url}?used=1`);
  t.equal(paid.status, 200, "a client without channels pays the fixed price");
  t.equal((await chain.usdcOf(payTo)) - before, 2_000n);
});

t.test("a stock client pays thirty requests with one deposit", async (t) => {
  const before = await chain.usdcOf(payTo);
  const payer = await channelPayer(chain);
  const answers: Response[] = [];
  for (let nth = 0; nth < 30; nth += 1) answers.push(await payer.pay(url));
  t.ok(answers.every(({ status }) => status === 200));
  t.match(await answers[0]?.json(), { words: "plain", payer: payer.account.address });
  const [first, second] = answers.map(receiptOf);
  t.match(first, {
    success: true,
    payer: payer.account.address,
    transaction: /^0x[0-9a-f]{64}$/,
    amount: String(DEPOSIT),
    extra: {
      chargedAmount: "1000",
      channelState: { balance: String(DEPOSIT), chargedCumulativeAmount: "1000" },
    },
  });
  t.match(second, { success: true, transaction: "", extra: { chargedAmount: "1000" } });
  t.equal(await chain.usdcOf(payer.account.address), 1_000_000n - DEPOSIT);
  const { payload } = await payer.proof(url);
  const id = idIn(payload);
  t.match((await record(id)).channel, { charged: "30000" });

  await claims().claim();
  t.same(await onChain(chain, id), { balance: DEPOSIT, claimed: 30_000n });
  t.equal((await chain.usdcOf(payTo)) - before, 30_000n, "exactly what was charged");
  const { channel } = await record(id);
  t.match(channel.state, { totalClaimed: "30000" });
  t.equal(channel.unclaimedSinceMs, undefined);
  await claims().claim();
  t.equal((await chain.usdcOf(payTo)) - before, 30_000n);
  t.equal((await payer.pay(url)).status, 200, "and it goes on");
});

t.test("the handler may charge less, also nothing, and never more", async (t) => {
  const payer = await channelPayer(chain);
  const charged = async () => {
    const { payload } = await payer.proof(url);
    return BigInt((await record(idIn(payload))).channel.charged);
  };
  t.equal((await payer.pay(`${url}?used=700`)).status, 200);
  t.equal(await charged(), 700n);
  for (const nth of [1, 2]) {
    const free = await payer.pay(`${url}?used=0`);
    t.equal(free.status, 200, `free ${nth}`);
    t.match(receiptOf(free), { success: true, extra: { chargedAmount: "0" } });
  }
  t.equal(await charged(), 700n);
  for (const [query, status] of [
    ["used=1001", 500],
    ["used=-1", 500],
    ["fail=1", 422],
  ] as const) {
    const failed = await payer.pay(`${url}?${query}`);
    t.equal(failed.status, status, query);
    t.equal(failed.headers.get("payment-response"), null);
    t.equal(failed.headers.get("x-words"), null);
  }
  t.equal(await charged(), 700n);
  t.equal((await payer.pay(`${url}?used=1000`)).status, 200, "the channel is free again");
  t.equal(await charged(), 1_700n);
});

t.test(
  "work that fails after a deposit charges nothing, and the payer learns of its deposit",
  async (t) => {
    const payer = await channelPayer(chain);
    const failed = await payer.pay(`${url}?fail=1`);
    t.equal(failed.status, 422);
    t.match(receiptOf(failed), {
      success: true,
      transaction: /^0x/,
      extra: { chargedAmount: "0", channelState: { chargedCumulativeAmount: "0" } },
    });
    t.equal((await payer.pay(url)).status, 200);
    t.equal(await chain.usdcOf(payer.account.address), 1_000_000n - DEPOSIT, "no second deposit");
  },
);

t.test("no work is done for a deposit that cannot be made", async (t) => {
  const payer = await channelPayer(chain, newAccount(), 10n);
  const done = worked.length;
  const refused = await payer.pay(url);
  t.equal(refused.status, 402);
  t.match(requiredOf(refused).error, /insufficient_balance/);
  t.equal(worked.length, done);
});

t.test("a client that lost its record is corrected, by the seller or by the chain", async (t) => {
  const payer = await channelPayer(chain);
  await payer.pay(url);
  await payer.pay(url);
  payer.forget();
  const again = await payer.pay(url);
  t.equal(again.status, 200);
  t.match(receiptOf(again), { extra: { channelState: { chargedCumulativeAmount: "3000" } } });
  t.equal(await chain.usdcOf(payer.account.address), 1_000_000n - DEPOSIT, "without a new deposit");
});

t.test("a seller that lost its record goes on from what it has claimed", async (t) => {
  const payer = await channelPayer(chain);
  await payer.pay(url);
  await claims().claim();
  await payer.pay(url);
  const second = await openChannelShop(t, chain, {
    facilitator,
    store: new OneProcessChannelStore(),
    payTo,
    authorizer,
  });
  const answer = await payer.pay(`${second.origin}/words`);
  t.equal(answer.status, 200);
  t.match(receiptOf(answer), { extra: { channelState: { chargedCumulativeAmount: "2000" } } });
});

t.test("one request at a time for each channel", async (t) => {
  const payer = await channelPayer(chain);
  await payer.pay(url);
  const { headers, payload } = await payer.proof(url);
  let open = () => {};
  gate.opens = new Promise((resolve) => (open = resolve));
  const done = worked.length;
  const first = get(url, { headers });
  await until(() => worked.length > done);
  const second = await get(url, { headers });
  t.equal(second.status, 402);
  t.equal(requiredOf(second).error, wrong("channel_busy"));
  open();
  gate.opens = undefined;
  t.equal((await first).status, 200);
  t.equal(worked.length, done + 1);
  t.match((await record(idIn(payload))).channel, { charged: "2000" });
});

t.test("a request that takes too long frees the channel, and is not charged", async (t) => {
  const payer = await channelPayer(chain);
  await payer.pay(url);
  const { headers, payload } = await payer.proof(url);
  let open = () => {};
  gate.opens = new Promise((resolve) => (open = resolve));
  const done = worked.length;
  const slow = get(`${url}?text=slow`, { headers });
  await until(() => worked.length > done);
  const { channel, version } = await record(idIn(payload));
  t.ok((channel.request?.untilMs ?? 0) <= Date.now() + 120_000, "not longer than the route allows");
  const over = { id: channel.request?.id ?? "", untilMs: 0 };
  t.ok(await store.save({ ...channel, request: over }, version));
  gate.opens = undefined;
  const quick = await get(`${url}?text=quick`, { headers });
  open();
  const answers = [quick, await slow];
  t.same(
    answers.map(({ status }) => status),
    [200, 402],
  );
  t.equal(answers[1]?.headers.get("x-words"), null);
  t.match(receiptOf(answers[1] as Response), {
    success: false,
    errorReason: wrong("channel_busy"),
  });
  t.match((await record(idIn(payload))).channel, { charged: "2000" });
});

t.test("a lost response is sent again for the same voucher, and charged once", async (t) => {
  const payer = await channelPayer(chain);
  const deposit = await payer.proof(url);
  const first = await get(url, { headers: deposit.headers });
  const again = await get(url, { headers: deposit.headers });
  t.same(await again.json(), await first.json(), "the deposit's");
  t.same(receiptOf(again), receiptOf(first));
  await payer.learn(deposit, again);

  const done = worked.length;
  const lost = await payer.proof(url);
  const answers: Response[] = [];
  for (let nth = 0; nth < 3; nth += 1) answers.push(await get(url, { headers: lost.headers }));
  t.same(
    answers.map(({ status }) => status),
    [200, 200, 200],
  );
  t.equal(worked.length, done + 1, "the work is done once");
  t.equal(new Set(await Promise.all(answers.map((answer) => answer.text()))).size, 1);
  t.equal(answers[2]?.headers.get("x-words"), "plain");
  t.same(receiptOf(answers[2] as Response), receiptOf(answers[0] as Response));
  t.match((await record(idIn(lost.payload))).channel, { charged: "2000" });

  const elsewhere = await get(`${url}?text=other`, { headers: lost.headers });
  t.equal(elsewhere.status, 402, "not for another request");
  t.match(requiredOf(elsewhere), {
    error: wrong("cumulative_amount_mismatch"),
    accepts: [
      {
        extra: {
          channelState: { chargedCumulativeAmount: "2000" },
          voucherState: { signedMaxClaimable: "2000" },
        },
      },
    ],
  });
  await payer.learn(lost, answers[2] as Response);
  t.equal((await payer.pay(url)).status, 200);
  const late = await get(url, { headers: lost.headers });
  t.equal(late.status, 402, "not after the next charge");
});

t.test("a lost response goes only to the same request", async (t) => {
  const payer = await channelPayer(chain);
  await payer.pay(url);
  const lost = await payer.proof(url);
  const post = (body: string, type = "application/json") =>
    get(url, { method: "POST", body, headers: { ...lost.headers, "content-type": type } });
  t.same(await (await post('{"a":[1,{"b":2}]}')).json(), { got: { a: [1, { b: 2 }] } });
  t.same(await (await post('{ "a": [1, {"b": 2}] }')).json(), { got: { a: [1, { b: 2 }] } });
  for (const [body, type] of [
    ['{"a":[1,{"b":3}]}'],
    ["null"],
    ["[object Object]", "text/plain"],
  ] as const) {
    const other = await post(body, type);
    t.equal(other.status, 402, body);
    t.equal(requiredOf(other).error, wrong("cumulative_amount_mismatch"), body);
  }
  t.match((await record(idIn(lost.payload))).channel, { charged: "2000" });
});

t.test("a response that is too large to be kept is charged, and not sent again", async (t) => {
  const payer = await channelPayer(chain);
  await payer.pay(url);
  const large = await payer.proof(url);
  const post = () =>
    get(url, {
      method: "POST",
      body: "x".repeat(70_000),
      headers: { ...large.headers, "content-type": "text/plain" },
    });
  t.equal((await post()).status, 200);
  const { channel } = await record(idIn(large.payload));
  t.match(channel, { charged: "2000", last: undefined });
  t.equal(requiredOf(await post()).error, wrong("cumulative_amount_mismatch"));
});

t.test("who cannot sign for the payer learns nothing of its channel", async (t) => {
  const payer = await channelPayer(chain);
  await payer.pay(url);
  const { payload } = await payer.proof(url);
  const id = idIn(payload);
  const signature = await signVoucher(chain, newAccount(), id, 1_000n);
  const voucher = { channelId: id, maxClaimableAmount: "1000", signature };
  const headers = headersOf({ ...payload, payload: { ...payload.payload, voucher } });
  const answer = await get(url, { headers });
  t.equal(answer.status, 402);
  t.equal(requiredOf(answer).error, wrong("voucher_signature"));
  t.notMatch(JSON.stringify(requiredOf(answer)), /voucherState|channelState/);
});

t.test("bent vouchers are refused before any work", async (t) => {
  const payer = await channelPayer(chain);
  await payer.pay(url);
  await payer.pay(url);
  const { payload, config } = await payer.proof(url);
  const id = idIn(payload);
  const signed = async (ceiling: bigint) => ({
    channelId: id,
    maxClaimableAmount: String(ceiling),
    signature: await signVoucher(chain, payer.account, id, ceiling),
  });
  const good = await signed(3_000n);
  const other = await channelPayer(chain);
  await other.pay(url);
  const done = worked.length;
  const cases: [string, object, RegExp][] = [
    ["a lower ceiling", { voucher: await signed(1_999n) }, /cumulative_amount_mismatch/],
    ["a higher ceiling", { voucher: await signed(4_000n) }, /cumulative_amount_mismatch/],
    [
      "beyond the deposit",
      { voucher: await signed(DEPOSIT + PRICE) },
      /cumulative_amount_mismatch/,
    ],
    [
      "a ceiling that is not signed",
      { voucher: { ...good, maxClaimableAmount: "3001" } },
      /voucher_signature/,
    ],
    [
      "another channel's id",
      { voucher: { ...good, channelId: idIn((await other.proof(url)).payload) } },
      /channel_id_mismatch/,
    ],
    ["no id", { voucher: { ...good, channelId: "0x1" } }, /channel_id_invalid/],
    [
      "another receiver",
      { channelConfig: { ...config, receiver: newAccount().address } },
      /channel_id_mismatch/,
    ],
    [
      "another payer",
      { channelConfig: { ...config, payer: newAccount().address } },
      /channel_id_mismatch/,
    ],
    ["another delay", { channelConfig: { ...config, withdrawDelay: 901 } }, /channel_id_mismatch/],
    [
      "a long signature",
      { voucher: { ...good, signature: `${good.signature}00` } },
      /voucher_signature/,
    ],
    // The contract refuses these forms, so they could never be claimed.
    [
      "a high s",
      { voucher: { ...good, signature: withHighS(good.signature) } },
      /voucher_signature/,
    ],
    [
      "a short recovery id",
      { voucher: { ...good, signature: good.signature.replace(/1b$/, "00").replace(/1c$/, "01") } },
      /voucher_signature/,
    ],
    ["another type", { type: "claim" }, /payload_type/],
    ["a negative ceiling", { voucher: { ...good, maxClaimableAmount: "-1" } }, /invalid_payload/],
    ["a nested ceiling", { voucher: { ...good, maxClaimableAmount: ["3000"] } }, /invalid_payload/],
    ["no config", { channelConfig: null }, /invalid_payload/],
  ];
  for (const [name, change, expected] of cases) {
    const bent = { ...payload, payload: { ...payload.payload, ...change } };
    const answer = await get(url, { headers: headersOf(bent) });
    t.equal(answer.status, 402, name);
    t.match(requiredOf(answer).error, expected, name);
  }
  t.equal(worked.length, done);
  t.match((await record(id)).channel, { charged: "2000" });
  t.equal((await payer.pay(url)).status, 200, "the channel is not held by them");
});

t.test("a channel for another receiver does not pay here", async (t) => {
  const elsewhere = await openChannelShop(t, chain, {
    facilitator,
    store: new OneProcessChannelStore(),
  });
  const payer = await channelPayer(chain);
  t.equal((await payer.pay(`${elsewhere.origin}/words`)).status, 200);
  const { payload } = await payer.proof(`${elsewhere.origin}/words`);
  const [accepted] = requiredOf(await get(url)).accepts;
  const answer = await get(url, {
    headers: headersOf({ ...payload, accepted } as PaymentPayload),
  });
  t.equal(answer.status, 402);
  t.equal(requiredOf(answer).error, wrong("receiver_mismatch"));
});

t.test("a refund gives back what is left after all charges, and no more", async (t) => {
  await claims().claim();
  const before = await chain.usdcOf(payTo);
  const payer = await channelPayer(chain);
  await payer.pay(`${url}?used=700`);
  await payer.pay(`${url}?used=700`);
  await t.rejects(payer.refund(url, String(DEPOSIT)), /refund_amount_invalid/);
  const { payload } = await payer.proof(url);
  t.match((await record(idIn(payload))).channel, { charged: "1400", request: undefined });
  t.match(await payer.refund(url, "8600"), { success: true, amount: "8600" });
  t.match(await onChain(chain, idIn(payload)), { balance: DEPOSIT - 8_600n, claimed: 1_400n });
  t.equal((await payer.pay(url)).status, 200, "it goes on after a part");
  t.match(await payer.refund(url), { success: true, amount: String(DEPOSIT - 8_600n - 2_400n) });
  t.equal(await chain.usdcOf(payer.account.address), 1_000_000n - 2_400n);
  await claims().claim();
  t.equal((await chain.usdcOf(payTo)) - before, 2_400n);
  await t.rejects(payer.refund(url), /no remaining balance|refund_no_balance|channel_not_found/);
  t.equal((await payer.pay(url)).status, 200, "a new deposit opens it again");
});

t.test("a refund that was signed and not seen to happen covers no charge", async (t) => {
  let signed: Record<string, unknown> | undefined;
  const remote = new HTTPFacilitatorClient({ url: facilitator });
  const own = await openChannelShop(t, chain, {
    facilitator: {
      getSupported: () => remote.getSupported(),
      verify: (...sent) => remote.verify(...sent),
      settle: async (payload, terms) => {
        if (payload.payload["type"] !== "refund") return remote.settle(payload, terms);
        signed = payload.payload;
        const { network } = terms;
        return { success: false, errorReason: "settlement_pending", transaction: "", network };
      },
    },
    store: new OneProcessChannelStore(),
  });
  const target = `${own.origin}/words`;
  const payer = await channelPayer(chain);
  await payer.pay(target);
  const { payload, config } = await payer.proof(target);
  await t.rejects(payer.refund(target, "48000"), /settlement_pending/);
  t.equal((await payer.pay(target)).status, 200, "what the refund leaves may be used");
  const refused = await payer.pay(target);
  t.equal(refused.status, 402);
  t.equal(requiredOf(refused).error, wrong("cumulative_exceeds_balance"));

  // The payer sends the signed refund alone, before any claim.
  const hash = await chain.walletClient(chain.admin).writeContract({
    address: CHANNELS,
    abi: CHANNELS_ABI,
    functionName: "refundWithSignature",
    args: [config, 48_000n, 0n, signed?.["refundAuthorizerSignature"] as Hex],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  await own.app.cashier.claims?.claim();
  t.same(await onChain(chain, idIn(payload)), { balance: 2_000n, claimed: 2_000n });
  t.equal(await chain.usdcOf(own.payTo), 2_000n, "nothing that was charged is lost");
});

t.test("a withdrawal that begins is claimed at once, and ends new charges", async (t) => {
  const payer = await channelPayer(chain);
  await payer.pay(url);
  await payer.pay(url);
  const { config, payload, headers } = await payer.proof(url);
  const id = idIn(payload);
  await chain.testClient.setBalance({ address: payer.account.address, value: 10n ** 18n });
  const hash = await chain.walletClient(payer.account).writeContract({
    address: CHANNELS,
    abi: CHANNELS_ABI,
    functionName: "initiateWithdraw",
    args: [config, DEPOSIT],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  // Its state is old, as it is some minutes later.
  const { channel, version } = await record(id);
  t.ok(await store.save({ ...channel, stateReadMs: 0 }, version));
  claims().wake();
  await until(async () => (await onChain(chain, id)).claimed === 2_000n);
  const answer = await get(url, { headers });
  t.equal(answer.status, 402);
  t.match(requiredOf(answer).error, /begun to withdraw/);
  await until(async () => (await record(id)).channel.unclaimedSinceMs === undefined);
  t.match(await payer.refund(url), { success: true, amount: String(DEPOSIT - 2_000n) });
});

t.test("of many claims a bad one fails alone, and is reported", async (t) => {
  const rows = new OneProcessChannelStore();
  const own = await openChannelShop(t, chain, { facilitator, store: rows });
  const ids: Hex[] = [];
  for (let nth = 0; nth < 3; nth += 1) {
    const payer = await channelPayer(chain);
    await payer.pay(`${own.origin}/words`);
    ids.push(idIn((await payer.proof(`${own.origin}/words`)).payload));
  }
  const bad = await record(ids[1] as Hex, rows);
  const signature = await signVoucher(chain, newAccount(), bad.channel.id, PRICE);
  const voucher = { ceiling: String(PRICE), signature };
  t.ok(await rows.save({ ...bad.channel, voucher }, bad.version));
  await own.app.cashier.claims?.claim();
  const claimed = await Promise.all(ids.map(async (id) => (await onChain(chain, id)).claimed));
  t.same(claimed, [PRICE, 0n, PRICE]);
  t.equal(await chain.usdcOf(own.payTo), 2n * PRICE);
  t.match(own.logged.join(""), new RegExp(`claiming from 1 payment channels.*${bad.channel.id}`));
  t.match(
    (await rows.unclaimed()).map(({ channel }) => channel.id),
    [bad.channel.id],
  );
});

t.test("a claim that was only reported stays open", async (t) => {
  const remote = new HTTPFacilitatorClient({ url: facilitator });
  let isHonest = false;
  const rows = new OneProcessChannelStore();
  const own = await openChannelShop(t, chain, {
    facilitator: {
      getSupported: () => remote.getSupported(),
      verify: (...sent) => remote.verify(...sent),
      settle: async (payload, terms) =>
        payload.payload["type"] === "claim" && !isHonest
          ? { success: true, transaction: "0x1", network: terms.network }
          : remote.settle(payload, terms),
    },
    store: rows,
  });
  const payer = await channelPayer(chain);
  await payer.pay(`${own.origin}/words`);
  await own.app.cashier.claims?.claim();
  t.equal((await rows.unclaimed()).length, 1);
  t.match(own.logged.join(""), /a claim that the chain does not show/);
  isHonest = true;
  await own.app.cashier.claims?.claim();
  t.equal((await rows.unclaimed()).length, 0);
  t.equal(await chain.usdcOf(own.payTo), PRICE);
});

t.test("more than the set amount is claimed at once", async (t) => {
  const own = await openChannelShop(t, chain, {
    facilitator,
    store: new OneProcessChannelStore(),
    channels: { claimAbove: "0.003" },
  });
  const payer = await channelPayer(chain);
  for (let nth = 0; nth < 2; nth += 1) await payer.pay(`${own.origin}/words`);
  t.equal(await chain.usdcOf(own.payTo), 0n);
  await payer.pay(`${own.origin}/words`);
  await until(async () => (await chain.usdcOf(own.payTo)) === 3_000n);
});

t.test("a store in memory warns, and is claimed to the end when the app closes", async (t) => {
  const own = await openChannelShop(t, chain, {
    facilitator,
    store: new OneProcessChannelStore(),
  });
  const payer = await channelPayer(chain);
  await payer.pay(`${own.origin}/words`);
  await own.app.close();
  t.equal(await chain.usdcOf(own.payTo), 1_000n);
});

t.test("the facilitator signs for a merchant that has no key of its own", async (t) => {
  const owner = await signIn(our, merchant);
  const made = await send(our, owner, "POST", "/api/merchant/keys", { label: "shop" });
  const headers = { Authorization: `Bearer ${String(made.body["apiKey"])}` };
  const delegated = await openChannelShop(t, chain, {
    facilitator: new HTTPFacilitatorClient({
      url: facilitator,
      createAuthHeaders: async () => ({ verify: headers, settle: headers, supported: headers }),
    }),
    store: new OneProcessChannelStore(),
    authorizer: null,
    payTo: merchant.address,
  });
  const target = `${delegated.origin}/words`;
  const payer = await channelPayer(chain);
  t.equal((await payer.pay(target)).status, 200);
  const { config } = await payer.proof(target);
  t.equal(config.receiverAuthorizer, privateKeyToAccount(ours).address);
  t.match(await payer.refund(target), { success: true, amount: String(DEPOSIT - PRICE) });
  await payer.pay(target);
  await delegated.app.cashier.claims?.claim();
  t.equal(await chain.usdcOf(merchant.address), 2_000n);
});

t.test("a tool of an MCP server is sold through a channel", async (t) => {
  const charges = cashier({
    facilitator,
    networks: [`eip155:${chain.chainId}`],
    payTo,
    channels: { store, receiverAuthorizer: authorizer },
  });
  let runs = 0;
  const tool = paidTool(
    charges,
    { name: "joke", price: { channel: "0.001" } },
    async (_receipt, { topic }: { topic: string }) => {
      runs += 1;
      if (topic === "none") throw new Error("no joke");
      return { content: [{ type: "text" as const, text: `${topic} ${runs}` }] };
    },
  );
  // The SDK passes its context last.
  const withContext = tool as (...args: unknown[]) => Promise<unknown>;
  interface Called {
    isError?: boolean;
    content: { text: string }[];
    structuredContent?: Record<string, unknown>;
    _meta?: Record<string, unknown>;
  }
  const call = async (topic: string, payment?: PaymentPayload) =>
    (await withContext({ topic }, { _meta: { "x402/payment": payment } })) as Called;
  const payer = await channelPayer(chain);
  const required = async () => (await call("a")).structuredContent as unknown as PaymentRequired;
  const receipt = ({ _meta }: Called) => _meta?.["x402/payment-response"] as SettleResponse;

  const proof = await payer.signs(await required());
  const failed = await call("none", proof);
  t.match(failed, { isError: true, content: [{ text: "no joke" }] });
  t.match(receipt(failed), { success: true, extra: { chargedAmount: "0" } });
  const paid = await call("cats", proof);
  t.match(paid, { isError: undefined, content: [{ text: "cats 2" }] });
  t.match(receipt(paid), { success: true, extra: { chargedAmount: "1000" } });
  t.same(await call("cats", proof), paid, "the same result to the same voucher");
  t.equal(runs, 2);
  const other = await call("dogs", proof);
  t.match(other, {
    isError: true,
    structuredContent: {
      error: wrong("cumulative_amount_mismatch"),
      accepts: [{ extra: { channelState: { chargedCumulativeAmount: "1000" } } }],
    },
  });
  t.match((await record(idIn(proof))).channel, { charged: "1000" });
});

t.test("mistakes in the options are found at the start", async (t) => {
  const starts = (channels: object, price: object = { channel: "0.001" }) =>
    openShop(
      t,
      chain,
      facilitator,
      (app) =>
        void app.get(
          "/",
          { config: { paywall: { price: price as { channel: string } } } },
          async () => "",
        ),
      { channels: channels as never },
    );
  for (const [options, expected] of [
    [{ withdrawDelay: "14m" }, /from "15m" to "30d"/],
    [{ withdrawDelay: "31d" }, /from "15m" to "30d"/],
    [{ withdrawDelay: "15m", claimEvery: "6m" }, /at most a third/],
    [{ claimEvery: "often" }, /such as "30m"/],
    [{ claimAbove: "0" }, /greater than zero/],
    [{ minDeposit: "1e3" }, /plain decimal/],
  ] as const)
    await t.rejects(starts({ store, receiverAuthorizer: newAccount(), ...options }), expected);
  await t.rejects(
    openShop(
      t,
      chain,
      facilitator,
      (app) =>
        void app.get("/", { config: { paywall: { price: { channel: "0.001" } } } }, async () => ""),
    ),
    /needs the paywall to have `channels`/,
  );
});

function headersOf(payload: PaymentPayload): Record<string, string> {
  return { "payment-signature": encodePaymentSignatureHeader(payload) };
}

/** The same signature in its other form. */
function withHighS(signature: Hex): Hex {
  const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
  const s = order - BigInt(`0x${signature.slice(66, 130)}`);
  const v = signature.endsWith("1b") ? "1c" : "1b";
  return `${signature.slice(0, 66)}${s.toString(16).padStart(64, "0")}${v}` as Hex;
}

// Goal: a seller that lies about a channel gets nothing beyond what was signed, and what was signed stays within the limits: each false
// report ends the channel, a total needs this wallet's own signature, and a deposit that is not made costs nothing.
import { randomUUID } from "node:crypto";
import t, { type Test } from "tap";
import {
  decodePaymentRequiredHeader,
  decodePaymentSignatureHeader,
  encodePaymentRequiredHeader,
} from "@x402/core/http";
import type { FacilitatorClient } from "@x402/core/server";
import type { RequestHandler } from "express";
import type { Address, Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { signVoucher } from "../helpers/batch-settlement.ts";
import {
  channelIn,
  channelOf,
  counted,
  depositsEnded,
  expectWholeLedger,
  onChain,
} from "./channel-facts.ts";
import { channelSeller, loseResponses, type ChannelSeller } from "./channel-sellers.ts";
import { market } from "./market.ts";
import { ourFacilitator } from "./stock-sellers.ts";

const PRICE = 1_000n;
/** A seller that lied is not trusted again, so each test has a payee of its own. */
const payees = Array.from({ length: 40 }, () => privateKeyToAccount(generatePrivateKey()).address);
const made = await market(t, {
  listen: true,
  env: { SETTLE_WAIT_MS: "10000", CONFIRMATIONS_5042002: "1" },
  agent: { dailyLimit: "5", channelHeld: "4", channelDelay: 86_400, allowlist: payees },
});
const { chain, database } = made;
const facilitator = ourFacilitator(made.baseUrl);
const nextPayee = (): Address => payees.pop() as Address;
type Options = Partial<Parameters<typeof channelSeller>[1]>;

async function sellerOf(t: Test, options: Options = {}): Promise<ChannelSeller & { url: string }> {
  const payTo = options.payTo ?? nextPayee();
  const seller = await channelSeller(t, { chain, facilitator, ...options, payTo });
  made.config.fetchPrivateOrigins.push(seller.origin);
  return Object.assign(seller, { url: `${seller.origin}/word` });
}

async function buy(t: Test, { url }: { url: string }) {
  // With a key of its own: it joins no earlier call.
  const answer = await made.fetch({ url }, { "idempotency-key": randomUUID() });
  t.match(answer, { status: 200 }, JSON.stringify(answer.body));
  return { ...channelIn(answer.body), body: answer.body };
}

const refused = (code: string, status = 403) => ({ status, body: { code } });

type Extra = Record<string, unknown> & { channelState?: Record<string, unknown> };
const FALSE_REPORTS: Record<string, (extra: Extra) => Extra> = {
  "a charge above the price": (extra) => ({ ...extra, chargedAmount: "1001" }),
  "a total above the charges": (extra) => withState(extra, { chargedCumulativeAmount: "2001" }),
  "a total below the charges": (extra) => withState(extra, { chargedCumulativeAmount: "1999" }),
  "a total that is no number": (extra) => withState(extra, { chargedCumulativeAmount: "1e3" }),
  "another channel": (extra) => withState(extra, { channelId: `0x${"ab".repeat(32)}` }),
  "a channel that is no text": (extra) => withState(extra, { channelId: 7 }),
  "a negative charge": (extra) => ({ ...extra, chargedAmount: "-1" }),
  "a fraction": (extra) => ({ ...extra, chargedAmount: "0.5" }),
  "only a total, above the price": (extra) =>
    withState({ ...extra, chargedAmount: undefined }, { chargedCumulativeAmount: "2001" }),
};
const withState = (extra: Extra, state: object): Extra => ({
  ...extra,
  channelState: { ...extra.channelState, ...state },
});

t.test("a report that breaks the rules ends the channel", async (t) => {
  for (const [name, bend] of Object.entries(FALSE_REPORTS))
    await t.test(name, async (t) => {
      const payTo = nextPayee();
      const seller = await sellerOf(t, { payTo });
      const { id } = await buy(t, seller);
      seller.report = (report) => ({ ...report, extra: bend(report.extra ?? {}) });
      const answer = await buy(t, seller);
      t.match(answer.body, { paid: true, amountPaid: "0.001" }, "its word counts for nothing");
      t.match(await channelOf(made, id), {
        status: "closing",
        reason: "seller_broke_rules",
        ceiling: 2_000n,
        charged: 2_000n,
      });
      seller.report = undefined;
      const vouchers = seller.paidRequests;
      t.match(await made.fetch({ url: seller.url }), refused("channel_distrusted"));
      const another = await sellerOf(t, { payTo });
      t.match(await made.fetch({ url: another.url }), refused("channel_distrusted"));
      t.equal(seller.paidRequests + another.paidRequests, vouchers, "nothing more is signed");
    });
  await t.test("an exact payment is still possible", async (t) => {
    const payTo = nextPayee();
    const seller = await sellerOf(t, { payTo });
    seller.report = (report) => ({ ...report, extra: { chargedAmount: "1001" } });
    await buy(t, seller);
    const both = await sellerOf(t, { payTo, exact: "1000" });
    const answer = await made.fetch({ url: both.url });
    t.match(answer, { status: 200, body: { paid: true, txHash: /^0x/ } }, answer.text);
  });
});

t.test("without a report, the whole price counts", async (t) => {
  const reports: Record<string, NonNullable<ChannelSeller["report"]>> = {
    "no report": () => undefined,
    "it failed": (report) => ({ ...report, success: false }),
    "nothing about the channel": (report) => ({ ...report, extra: {} }),
  };
  for (const [name, report] of Object.entries(reports))
    await t.test(name, async (t) => {
      const seller = await sellerOf(t);
      seller.report = report;
      const { id } = await buy(t, seller);
      await buy(t, seller);
      t.match(await channelOf(made, id), { status: "open", ceiling: 2_000n, charged: 2_000n });
    });
});

t.test("charged in full, reported as nothing, and claimed in full", async (t) => {
  const seller = await sellerOf(t);
  const before = await counted(made);
  const { id } = await buy(t, seller);
  seller.report = (report) => ({
    ...report,
    extra: { chargedAmount: "0", channelState: { chargedCumulativeAmount: "1000", channelId: id } },
  });
  for (const n of [1, 2, 3]) {
    const answer = await buy(t, seller);
    t.match(answer.body, { amountPaid: "0" }, `${n}`);
    // Its own total is ahead of what it reported: it proves that with our voucher, each time.
    seller.report = (report) => ({
      ...report,
      extra: {
        chargedAmount: "0",
        channelState: { chargedCumulativeAmount: String((n + 1) * 1_000), channelId: id },
      },
    });
  }
  t.equal((await counted(made)) - before, 4_000n, "the ceiling is what counts");
  await seller.collect();
  t.match(await onChain(made, id), { claimed: 4_000n }, "and what it may claim");
  await expectWholeLedger(t, made);
});

interface Shown {
  payload: {
    channelConfig: Record<string, unknown>;
    voucher: { channelId: Hex; maxClaimableAmount: string; signature: Hex };
  };
}
const proofIn = (header: unknown): Shown =>
  decodePaymentSignatureHeader(String(header)) as unknown as Shown;

/** Answers each proof with a 402 that states another total; the rest as usual. */
async function corrects(
  { url }: { url: string },
  say: (shown: Shown["payload"]["voucher"]) => object | Promise<object>,
  error = "invalid_batch_settlement_evm_cumulative_amount_mismatch",
): Promise<RequestHandler> {
  const first = await fetch(url);
  const asked = decodePaymentRequiredHeader(first.headers.get("payment-required") ?? "");
  return (request, response, next) => {
    const header = request.headers["payment-signature"];
    if (header === undefined) return next();
    void (async () => {
      const { voucher } = proofIn(header).payload;
      const said = await say(voucher);
      const accepts = asked.accepts.map((one) => ({ ...one, extra: { ...one.extra, ...said } }));
      response.setHeader(
        "payment-required",
        encodePaymentRequiredHeader({ ...asked, error, accepts }),
      );
      response.status(402).json({});
    })();
  };
}

const stateOf = (channelId: Hex, total: bigint) => ({
  channelId,
  balance: "100000",
  totalClaimed: "0",
  withdrawRequestedAt: 0,
  refundNonce: "0",
  chargedCumulativeAmount: String(total),
});

t.test("a total without this wallet's signature is not adopted", async (t) => {
  const thief = privateKeyToAccount(generatePrivateKey());
  const claims: Record<string, (shown: Shown["payload"]["voucher"]) => object | Promise<object>> = {
    "signed by somebody else": async ({ channelId }) => ({
      channelState: stateOf(channelId, 5_000n),
      voucherState: {
        signedMaxClaimable: "5000",
        signature: await signVoucher(chain, thief, channelId, 5_000n),
      },
    }),
    "our signature, another ceiling": ({ channelId, signature }) => ({
      channelState: stateOf(channelId, 2_001n),
      voucherState: { signedMaxClaimable: "2001", signature },
    }),
    "above the ceiling that we signed": ({ channelId, signature, maxClaimableAmount }) => ({
      channelState: stateOf(channelId, 2_001n),
      voucherState: { signedMaxClaimable: maxClaimableAmount, signature },
    }),
    "no signature": ({ channelId }) => ({ channelState: stateOf(channelId, 2_000n) }),
    "a broken signature": ({ channelId }) => ({
      channelState: stateOf(channelId, 2_000n),
      voucherState: { signedMaxClaimable: "2000", signature: "0x12" },
    }),
    "another channel": ({ signature, maxClaimableAmount }) => ({
      channelState: stateOf(`0x${"cd".repeat(32)}`, 2_000n),
      voucherState: { signedMaxClaimable: maxClaimableAmount, signature },
    }),
    "no numbers": ({ channelId, signature }) => ({
      channelState: { ...stateOf(channelId, 0n), chargedCumulativeAmount: "-1" },
      voucherState: { signedMaxClaimable: "2000", signature },
    }),
  };
  for (const [name, say] of Object.entries(claims))
    await t.test(name, async (t) => {
      const seller = await sellerOf(t);
      const { id } = await buy(t, seller);
      const before = await counted(made);
      seller.before = await corrects(seller, say);
      const vouchers = seller.paidRequests;
      const answer = await made.fetch({ url: seller.url });
      t.match(answer, refused("settlement_failed", 502), answer.text);
      t.equal(seller.paidRequests, vouchers + 1, "shown once");
      t.match(await channelOf(made, id), { status: "open", charged: 1_000n, ceiling: 2_000n });
      seller.before = undefined;
      await buy(t, seller);
      t.equal((await counted(made)) - before, PRICE, "the voucher that it kept is used");
      t.match(await channelOf(made, id), { charged: 2_000n, ceiling: 2_000n });
    });
});

t.test("a total with this wallet's signature is adopted once in a fetch", async (t) => {
  const seller = await sellerOf(t);
  const { id } = await buy(t, seller);
  const before = await counted(made);
  const vouchers = seller.paidRequests;
  // Each time as if the voucher that it gets had been charged before.
  seller.before = await corrects(seller, ({ channelId, maxClaimableAmount, signature }) => ({
    channelState: stateOf(channelId, BigInt(maxClaimableAmount)),
    voucherState: { signedMaxClaimable: maxClaimableAmount, signature },
  }));
  const answer = await made.fetch({ url: seller.url });
  t.match(answer, refused("settlement_failed", 502), answer.text);
  t.equal(seller.paidRequests, vouchers + 2, "once more, and no third time");
  t.equal((await counted(made)) - before, 2n * PRICE, "each voucher counts");
  t.match(await channelOf(made, id), { status: "open", charged: 2_000n, ceiling: 3_000n });
  await expectWholeLedger(t, made);
});

t.test("a refusal for another reason changes nothing", async (t) => {
  const seller = await sellerOf(t);
  const { id } = await buy(t, seller);
  const before = await counted(made);
  seller.before = await corrects(
    seller,
    ({ channelId, maxClaimableAmount, signature }) => ({
      channelState: stateOf(channelId, BigInt(maxClaimableAmount)),
      voucherState: { signedMaxClaimable: maxClaimableAmount, signature },
    }),
    "invalid_batch_settlement_evm_channel_busy",
  );
  for (const _ of [1, 2])
    t.match(await made.fetch({ url: seller.url }), refused("settlement_failed", 502));
  seller.before = undefined;
  await buy(t, seller);
  t.equal((await counted(made)) - before, PRICE, "one ceiling for all three");
  t.match(await channelOf(made, id), { charged: 2_000n, ceiling: 2_000n });
});

t.test(
  "two responses are lost, and one of the two was charged: neither is reported as unpaid",
  async (t) => {
    const seller = await sellerOf(t);
    const before = await counted(made);
    const keys = [randomUUID(), randomUUID()];
    const ask = (key: string) =>
      // Not shown again by itself, so that only the seller's total can decide.
      made.fetch({ url: seller.url, method: "POST", body: {} }, { "idempotency-key": key });
    seller.before = loseResponses;
    const ids: unknown[] = [];
    for (const key of keys) {
      const lost = await ask(key);
      t.match(lost, refused("payment_status_unknown", 504), lost.text);
      ids.push(lost.body["paymentId"]);
    }
    seller.before = undefined;
    t.equal(seller.served, 1, "the seller charged the first, and refused the second");
    const { id } = await buy(t, seller);
    t.match(await channelOf(made, id), { charged: 2_000n, ceiling: 2_000n });
    const vouchers = seller.paidRequests;
    for (const _ of ["first", "again"])
      for (const [index, key] of keys.entries()) {
        const answer = await ask(key);
        t.match(answer, {
          status: 502,
          body: {
            code: "charge_not_known",
            retryable: false,
            paymentId: ids[index],
            detail: /0\.001 USDC for one or more of 2 requests/,
          },
        });
        t.notMatch(answer.body, { paid: Boolean }, "neither paid nor unpaid");
      }
    t.equal(seller.paidRequests, vouchers, "nothing more is shown to the seller");
    for (const paymentId of ids) {
      const answer = await made.app.inject({
        url: `/api/agents/me/payments/${String(paymentId)}`,
        headers: made.agent.headers,
      });
      t.match(answer.json(), {
        status: "settled",
        channel: { charged: null },
        failure: { code: "charge_not_known", detail: /Nothing shows for which/ },
      });
    }
    const { rows: events } = await database.pool.query<{ type: string }>(
      "SELECT type FROM notifications WHERE subject_id = ANY($1) ORDER BY 1",
      [ids],
    );
    t.same(
      events.map(({ type }) => type),
      ["payment.undelivered", "payment.undelivered"],
      "neither is reported as settled",
    );
    await seller.collect();
    t.match(await onChain(made, id), { claimed: 2_000n }, "the books have each charge once");
    t.equal((await counted(made)) - before, 2n * PRICE);
    await expectWholeLedger(t, made);
  },
);

t.test("a seller that lost its memory goes on", async (t) => {
  const authorizer = privateKeyToAccount(generatePrivateKey());
  const payTo = nextPayee();
  const first = await sellerOf(t, { authorizer, payTo });
  const { id } = await buy(t, first);
  await buy(t, first);
  const second = await sellerOf(t, { authorizer, payTo });
  const answer = await buy(t, second);
  t.match(answer, { id, charged: "0.003" });
  await second.collect();
  t.match(await onChain(made, id), { claimed: 3_000n });
});

t.test("a deposit is taken, and the answer is 500", async (t) => {
  const seller = await sellerOf(t);
  const before = await counted(made);
  seller.before = (request, response, next) => {
    const header = request.headers["payment-signature"];
    if (header === undefined) return next();
    void (async () => {
      const proof = decodePaymentSignatureHeader(String(header));
      await facilitator.settle(proof, proof.accepted);
      response.status(500).json({});
    })();
  };
  const answer = await made.fetch({ url: seller.url });
  t.equal(answer.status, 504, answer.text);
  const { id } = channelIn(answer.body);
  t.match(await onChain(made, id), { balance: 100_000n });
  seller.before = undefined;
  const next = await buy(t, seller);
  t.match(next, { id, balance: "0.1", charged: "0.001" });
  t.equal((await counted(made)) - before, PRICE);
  t.match(await onChain(made, id), { balance: 100_000n }, "no second deposit");
});

t.test("a facilitator says that the deposit failed", async (t) => {
  let isDown = true;
  const unwilling: FacilitatorClient = {
    verify: (...sent) => facilitator.verify(...sent),
    settle: async (payload, requirements) =>
      isDown
        ? {
            success: false,
            errorReason: "invalid_batch_settlement_evm_deposit_transaction_failed",
            transaction: "",
            network: requirements.network,
          }
        : facilitator.settle(payload, requirements),
    getSupported: () => facilitator.getSupported(),
  };
  const seller = await sellerOf(t, { facilitator: unwilling });
  const before = await counted(made);
  const answer = await made.fetch({ url: seller.url });
  t.match(answer, refused("settlement_failed", 502), answer.text);
  const { id } = channelIn(answer.body);
  isDown = false;
  t.match(await buy(t, seller), { id, charged: "0.001", balance: "0.1" });
  t.match(await onChain(made, id), { balance: 100_000n }, "the same deposit, shown again");
  t.equal((await counted(made)) - before, PRICE);
});

t.test("a deposit is never made", async (t) => {
  const authorizer = privateKeyToAccount(generatePrivateKey());
  const payTo = nextPayee();
  const seller = await sellerOf(t, { authorizer, payTo, maxTimeoutSeconds: 10 });
  seller.before = (request, response, next) => {
    if (request.headers["payment-signature"] === undefined) next();
    else response.status(403).json({});
  };
  const before = await counted(made);
  const answer = await made.fetch({ url: seller.url });
  t.match(answer, refused("upstream_error", 502), answer.text);
  const { id } = channelIn(answer.body);
  const open = async () => {
    const { rows } = await database.pool.query<{ id: string; valid: string; status: string }>(
      "SELECT id, valid_before::text AS valid, status FROM payments WHERE agent_id = $1 AND channel_id = $2 AND kind = 'deposit'",
      [made.agent.id, id],
    );
    return rows;
  };
  const [deposit] = await open();
  if (!deposit) throw new Error("no deposit");
  await chain.testClient.setNextBlockTimestamp({ timestamp: BigInt(deposit.valid) + 1n });
  await chain.testClient.mine({ blocks: 4 });
  // The search starts by our clock, the proof uses the chain's time.
  await database.pool.query(
    "UPDATE settlements SET valid_before = valid_before - 200 WHERE id = $1",
    [deposit.id],
  );
  await depositsEnded(made);
  t.match(await open(), [{ status: "voided" }], "the money is free again");
  // The chain is ahead of our clock now, so the next deposit is valid for longer.
  const later = await sellerOf(t, { authorizer, payTo, maxTimeoutSeconds: 120 });
  t.match(await buy(t, later), { id, balance: "0.1", charged: "0.001" });
  t.match(await onChain(made, id), { balance: 100_000n });
  t.equal((await counted(made)) - before, PRICE, "the same ceiling");
  await expectWholeLedger(t, made);
});

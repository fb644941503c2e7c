// Goal: a seller's channel charges each voucher once and within what was signed, sends a lost response again to the same request only, and gives back no money that was charged.
// Own process (it sets the clock of the process).
import { decodePaymentResponseHeader } from "@x402/core/http";
import t from "tap";
import { inspect } from "node:util";
import type { Refused, Settled } from "../../packages/paywall/src/answers.ts";
import type { NotCovered } from "../../packages/paywall/src/channels.ts";
import type { ChannelStore } from "../../packages/paywall/src/channel-store.ts";
import { OneProcessChannelStore } from "../../packages/paywall/src/channel-store.ts";
import type { Metered } from "../../packages/paywall/src/meter.ts";
import { NO_ADDRESS, reason } from "../../packages/paywall/src/voucher.ts";
import {
  channelOf,
  CONFIG,
  ID,
  idOf,
  NETWORK,
  NOW,
  openShop,
  payer,
  paymentOf,
  PRICE,
  stateOf,
  termsOf,
  withClock,
  type Shop,
} from "./channel-samples.ts";

const setTime = withClock(t);
t.afterEach(() => setTime(NOW));

type Begun = Settled | Refused | Metered | NotCovered;
const begin = async (
  { charges }: Shop,
  sent: Parameters<typeof paymentOf>[0],
  beforeSettle: () => Promise<void> = async () => undefined,
): Promise<Begun> => charges.begin(await paymentOf(sent), beforeSettle);
const metered = async (...args: Parameters<typeof begin>): Promise<Metered> => {
  const begun = await begin(...args);
  if (begun.kind !== "metered") throw new Error(`${begun.kind} ${JSON.stringify(begun)}`);
  return begun;
};
const RESPONSE = { status: 200, headers: { "content-type": "text/plain" }, payload: "hello" };
/** A channel with a deposit of 10,000, of which 1,000 are charged. */
async function charged(): Promise<Shop> {
  const shop = openShop();
  await (
    await metered(shop, { type: "deposit", ceiling: PRICE, deposit: "10000" })
  ).settle(PRICE, RESPONSE);
  shop.answers.verified.length = 0;
  shop.answers.settled.length = 0;
  shop.settled.length = 0;
  return shop;
}

t.test("the first request makes a deposit, and is charged when its work is done", async (t) => {
  const shop = openShop();
  shop.answers.verifies = [{ isValid: true, extra: { ...stateOf({ balance: "0" }) } }];
  shop.answers.settles = [{ extra: { channelState: stateOf() } }];
  let isBefore = false;
  const begun = await metered(
    shop,
    { type: "deposit", ceiling: PRICE, deposit: "10000" },
    async () => {
      isBefore = shop.answers.settled.length === 0;
    },
  );
  t.ok(isBefore, "the deposit is made after the check before it");
  t.match(begun, {
    headers: {},
    payer: payer.address,
    network: NETWORK,
    maximum: "1000",
    unlessSet: PRICE,
    proof: `${NETWORK} ${ID} 1000`,
  });
  t.match(await shop.record(), {
    charged: "0",
    request: { id: String, untilMs: NOW + 60_000 },
    usedMs: NOW,
  });
  t.equal(shop.answers.verified.length, 1);
  t.match(shop.answers.settled, [{ payload: { type: "deposit" } }]);
  t.equal((await begun.settle(700n, RESPONSE)).kind, "settled");
  const settlement = {
    success: true,
    transaction: `0x${"cc".repeat(32)}`,
    extra: {
      chargedAmount: "700",
      channelState: { channelId: ID, ...stateOf(), chargedCumulativeAmount: "700" },
    },
  };
  t.match(shop.settled, [["700", settlement]]);
  const record = await shop.record();
  t.match(record, {
    id: ID,
    network: NETWORK,
    config: CONFIG,
    charged: "700",
    voucher: { ceiling: "1000" },
    state: stateOf(),
    stateReadMs: NOW,
    unclaimedSinceMs: NOW,
    last: {
      ceiling: "1000",
      amount: "700",
      settlement,
      response: { status: 200, headers: RESPONSE.headers, text: "hello" },
      untilMs: NOW + 600_000,
    },
  });
  t.notOk("request" in record, "the channel is free");
});

t.test("a voucher alone is charged without the facilitator", async (t) => {
  const shop = await charged();
  const begun = await metered(shop, { ceiling: 2_000n });
  await begun.settle(PRICE, RESPONSE);
  t.same([shop.answers.verified, shop.answers.settled], [[], []]);
  t.match(shop.settled, [
    [
      "1000",
      {
        success: true,
        payer: payer.address.toLowerCase(),
        transaction: "",
        network: NETWORK,
        amount: "",
        extra: { chargedAmount: "1000", channelState: { chargedCumulativeAmount: "2000" } },
      },
    ],
  ]);
  t.match(await shop.record(), { charged: "2000", voucher: { ceiling: "2000" } });
});

t.test("how long the record of the chain's state is believed", async (t) => {
  const cases: [withdrawDelay: number, freshMs: number][] = [
    [900, 300_000],
    [2_592_000, 300_000],
    [600, 200_000],
    [30, 30_000],
  ];
  for (const [withdrawDelay, freshMs] of cases) {
    const config = { ...CONFIG, withdrawDelay };
    const terms = termsOf({
      extra: { receiverAuthorizer: CONFIG.receiverAuthorizer, withdrawDelay },
    });
    for (const ms of [freshMs, freshMs + 1]) {
      setTime(NOW);
      const shop = openShop();
      await shop.put({ id: idOf(config), config, state: stateOf({ totalClaimed: "5" }) });
      setTime(NOW + ms);
      t.equal((await begin(shop, { ceiling: 2_000n, config, terms })).kind, "metered");
      t.equal(
        shop.answers.verified.length,
        ms > freshMs ? 1 : 0,
        `${withdrawDelay} s, after ${ms} ms`,
      );
    }
  }
});

t.test(
  "the facilitator is asked whenever the record does not prove that the voucher is covered",
  async (t) => {
    const cases: [string, object][] = [
      ["the payer withdraws", { state: stateOf({ withdrawRequestedAt: 5 }) }],
      ["beyond the balance", { state: stateOf({ balance: "1999" }) }],
    ];
    for (const [what, over] of cases) {
      const shop = openShop();
      await shop.put(over);
      const { kind } = await begin(shop, { ceiling: 2_000n });
      t.equal(kind, "metered", `${what}: the newer state counts`);
      t.equal(shop.answers.verified.length, 1, what);
    }
    const known = openShop();
    await known.put({ state: stateOf({ balance: "2000" }) });
    t.equal((await begin(known, { ceiling: 2_000n })).kind, "metered", "all of the balance");
    t.equal(known.answers.verified.length, 0);
    const unsigned = openShop();
    const config = { ...CONFIG, payerAuthorizer: NO_ADDRESS };
    await unsigned.put({ id: idOf(config), config });
    t.equal((await begin(unsigned, { ceiling: 2_000n, config })).kind, "metered");
    t.equal(unsigned.answers.verified.length, 1, "a contract's signature");
    t.match(await begin(unsigned, { ceiling: 9_999n, config }), {
      kind: "notCovered",
      reason: reason("channel_busy"),
    });
  },
);

t.test("what the facilitator says of a voucher", async (t) => {
  const refused = { isValid: false, invalidReason: "because" };
  const valid = { isValid: true, extra: { ...stateOf() } };
  const shop = openShop();
  shop.answers.verifies = [refused];
  t.same(await begin(shop, { ceiling: PRICE }), { kind: "notCovered", reason: "because" });
  t.equal(shop.answers.verified.length, 1);

  const made = openShop();
  made.answers.verifies = [refused, valid];
  t.equal(
    (await begin(made, { type: "deposit", ceiling: PRICE, deposit: "10000" })).kind,
    "metered",
  );
  t.match(made.answers.verified, [
    { payload: { type: "deposit" } },
    { payload: { type: "voucher" } },
  ]);
  t.same(made.answers.settled, [], "the deposit was made already");

  const unmade = openShop();
  unmade.answers.verifies = [refused, { isValid: false, invalidReason: "other" }];
  t.same(await begin(unmade, { type: "deposit", ceiling: PRICE, deposit: "10000" }), {
    kind: "notCovered",
    reason: "because",
  });
});

t.test("a deposit that fails frees the channel, and so does a check before it", async (t) => {
  const shop = openShop();
  shop.answers.settles = [{ success: false, errorReason: "broke", errorMessage: "No." }];
  const sent = { type: "deposit", ceiling: PRICE, deposit: "10000" } as const;
  t.match(await begin(shop, sent), { kind: "refused", response: { errorReason: "broke" } });
  t.notOk((await shop.record()).request);
  await t.rejects(
    begin(shop, sent, async () => {
      throw new Error("not allowed");
    }),
    /not allowed/,
  );
  t.notOk((await shop.record()).request);
  t.equal((await shop.record()).charged, "0");
});

t.test("the amount is at most the price", async (t) => {
  for (const amount of [PRICE + 1n, -1n]) {
    const shop = await charged();
    await t.rejects((await metered(shop, { ceiling: 2_000n })).settle(amount), RangeError);
    t.match(await shop.record(), {
      charged: "1000",
      request: undefined,
      voucher: { ceiling: "1000" },
    });
  }
  const nothing = await charged();
  await (await metered(nothing, { ceiling: 2_000n })).settle(0n, RESPONSE);
  const record = await nothing.record();
  t.match(record, { charged: "1000", voucher: { ceiling: "1000" } });
  t.notOk("last" in record);
  t.match(nothing.settled, [["0", { extra: { chargedAmount: "0" } }]]);
  const exact = await charged();
  t.equal((await (await metered(exact, { ceiling: 2_000n })).settle(PRICE)).kind, "settled");
  t.notOk("last" in (await exact.record()), "no response to keep");
});

t.test("a request that is given up charges nothing, and reports its deposit", async (t) => {
  const shop = await charged();
  t.same(await (await metered(shop, { ceiling: 2_000n })).release(), {});
  t.match(await shop.record(), { charged: "1000", request: undefined });
  const first = openShop();
  const headers = await (
    await metered(first, { type: "deposit", ceiling: PRICE, deposit: "10000" })
  ).release();
  t.match(decodePaymentResponseHeader(String(headers["payment-response"])), {
    success: true,
    extra: { chargedAmount: "0" },
  });
  t.match(await first.record(), { charged: "0", request: undefined });
});

t.test("one request at a time, until its time is over", async (t) => {
  const shop = await charged();
  const first = await metered(shop, { ceiling: 2_000n });
  const busy = { kind: "notCovered", reason: reason("channel_busy") };
  t.match(await begin(shop, { ceiling: 2_000n }), busy);
  setTime(NOW + 59_999);
  t.match(await begin(shop, { ceiling: 2_000n }), busy);
  setTime(NOW + 60_000);
  const second = await metered(shop, { ceiling: 2_000n });
  t.match(await first.settle(PRICE), {
    kind: "refused",
    response: { success: false, errorReason: reason("channel_busy") },
  });
  t.match(await shop.record(), { charged: "1000" });
  t.same(await first.release(), {});
  t.ok((await shop.record()).request, "the second still has it");
  t.equal((await second.settle(PRICE)).kind, "settled");
  const slow = { ...CONFIG, withdrawDelay: 90 };
  const terms = termsOf({
    extra: { receiverAuthorizer: CONFIG.receiverAuthorizer, withdrawDelay: 90 },
  });
  const short = openShop();
  await metered(short, { ceiling: PRICE, config: slow, terms });
  t.equal(
    (await short.record(idOf(slow))).request?.untilMs,
    NOW + 60_000 + 30_000,
    "a third of the delay",
  );
});

t.test("a lost response goes to the same request only, and for ten minutes", async (t) => {
  const lost = async (over: object, atMs = NOW) => {
    const shop = await charged();
    await (await metered(shop, { ceiling: 2_000n, body: { a: 1 } })).settle(PRICE, RESPONSE);
    setTime(atMs);
    const answer = await begin(shop, { ceiling: 2_000n, body: { a: 1 }, ...over });
    setTime(NOW);
    return { answer, shop };
  };
  const mismatch = { kind: "notCovered", reason: reason("cumulative_amount_mismatch") };
  const { answer, shop } = await lost({});
  t.match(answer, {
    kind: "settled",
    kept: { status: 200, headers: RESPONSE.headers, payload: "hello" },
  });
  t.match(shop.settled, [
    ["1000", Object],
    ["1000", { extra: { chargedAmount: "1000" } }],
  ]);
  t.match(await shop.record(), { charged: "2000" }, "charged once");
  t.match((await lost({}, NOW + 599_999)).answer, { kind: "settled" });
  t.match((await lost({}, NOW + 600_000)).answer, mismatch);
  for (const over of [
    { body: { a: 2 } },
    { resourceKey: "other" },
    { ceiling: 1_999n },
    { body: undefined },
  ])
    t.match((await lost(over)).answer, mismatch, Object.keys(over).join(" "));
  t.match((await lost({ ceiling: 2_500n })).answer, {
    ...mismatch,
    state: {
      channelState: { channelId: ID, ...stateOf(), chargedCumulativeAmount: "2000" },
      voucherState: { signedMaxClaimable: "2000", signature: /^0x/ },
    },
  });
  const unused = openShop();
  const { voucher: _voucher, ...without } = channelOf({ charged: "0" });
  await unused.store.save(without, 0);
  t.notOk("voucherState" in ((await begin(unused, { ceiling: 5n })) as NotCovered).state!);
});

t.test(
  "a refund request with a voucher that was charged less gets no response of that request",
  async (t) => {
    const shop = await charged();
    await (await metered(shop, { ceiling: 2_000n })).settle(700n, RESPONSE);
    t.match(await begin(shop, { type: "refund", ceiling: 2_000n }), {
      reason: reason("cumulative_amount_mismatch"),
    });
  },
);

t.test("which requests are the same", async (t) => {
  const isSame = async (one: unknown, other: unknown): Promise<boolean> => {
    const shop = await charged();
    await (await metered(shop, { ceiling: 2_000n, body: one })).settle(PRICE, RESPONSE);
    return (await begin(shop, { ceiling: 2_000n, body: other })).kind === "settled";
  };
  const stream = () => new URLSearchParams();
  const bytes = new TextEncoder().encode("a");
  const cases: [unknown, unknown, boolean][] = [
    [undefined, undefined, true],
    [null, undefined, true],
    ["a", "a", true],
    ["a", "b", false],
    [bytes, "a", true],
    [{ a: [1, "b", null] }, { a: [1, "b", null] }, true],
    [[1], [1], true],
    [[1], [2], false],
    [7, 7, true],
    [Object.create(null), {}, true],
    [stream(), stream(), false],
    [{ a: stream() }, { a: stream() }, false],
    [() => 1, () => 1, false],
    [{ a: () => 1 }, { a: () => 1 }, false],
  ];
  for (const [one, other, expected] of cases)
    t.equal(await isSame(one, other), expected, inspect([one, other]));
});

t.test("which responses are kept", async (t) => {
  const kept = async (payload: string | Buffer) => {
    const shop = await charged();
    await (await metered(shop, { ceiling: 2_000n })).settle(PRICE, { ...RESPONSE, payload });
    const again = await begin(shop, { ceiling: 2_000n });
    return again.kind === "settled" ? again.kept?.payload : again.kind;
  };
  t.equal(await kept("é"), "é");
  t.same(await kept(Buffer.from([1, 255])), Buffer.from([1, 255]));
  t.equal(await kept(""), "");
  t.equal(await kept("a".repeat(65_536)), "a".repeat(65_536));
  t.equal(await kept("a".repeat(65_537)), "notCovered");
  t.equal(await kept(Buffer.alloc(65_537)), "notCovered");
});

t.test("a payer that withdraws gets no more work, and its charges are claimed", async (t) => {
  const shop = openShop();
  await shop.put({ stateReadMs: NOW - 1_000_000 });
  const state = stateOf({ withdrawRequestedAt: 5 });
  shop.answers.verifies = [{ isValid: true, extra: { ...state } }];
  let woken = 0;
  shop.claims.wake = () => void (woken += 1);
  t.same(await begin(shop, { ceiling: 2_000n }), {
    kind: "notCovered",
    reason: "The payer has begun to withdraw from this channel.",
  });
  t.match(await shop.record(), { state, stateReadMs: NOW, charged: "1000" });
  t.equal(woken, 1);
  const unknown = openShop();
  unknown.answers.verifies = [{ isValid: true, extra: { ...state } }];
  t.match(await begin(unknown, { ceiling: PRICE }), { kind: "notCovered" });
  t.equal(await unknown.store.find(ID), undefined, "nothing is recorded of it");
});

t.test("what a voucher may be signed for", async (t) => {
  const exceeds = { kind: "notCovered", reason: reason("cumulative_exceeds_balance") };
  const cases: [string, object, Parameters<typeof paymentOf>[0], object][] = [
    [
      "all of the balance",
      { state: stateOf({ balance: "2000" }) },
      { ceiling: 2_000n },
      { kind: "metered" },
    ],
    [
      "more than the balance",
      { state: stateOf({ balance: "1999" }), stateReadMs: NOW + 1 },
      { ceiling: 2_000n },
      exceeds,
    ],
    [
      "with its deposit",
      { state: stateOf({ balance: "1999" }), stateReadMs: NOW + 1 },
      { type: "deposit", ceiling: 2_000n, deposit: "1" },
      { kind: "metered" },
    ],
    [
      "not what a signed refund may take",
      { signedRefund: { nonce: "0", amount: "8001" } },
      { ceiling: 2_000n },
      exceeds,
    ],
    [
      "what that refund leaves",
      { signedRefund: { nonce: "0", amount: "8000" } },
      { ceiling: 2_000n },
      { kind: "metered" },
    ],
    [
      "a refund that was made",
      { signedRefund: { nonce: "1", amount: "10000" } },
      { ceiling: 2_000n },
      { kind: "metered" },
    ],
  ];
  for (const [what, over, sent, expected] of cases) {
    const shop = openShop();
    await shop.put(over);
    t.match(await begin(shop, sent), expected, what);
  }
});

t.test("a record that was lost goes on from what the chain shows as claimed", async (t) => {
  const shop = openShop();
  shop.answers.verifies = [{ isValid: true, extra: { ...stateOf({ totalClaimed: "500" }) } }];
  t.match(await begin(shop, { ceiling: PRICE }), {
    kind: "notCovered",
    reason: reason("cumulative_amount_mismatch"),
  });
  await (await metered(shop, { ceiling: 1_500n })).settle(PRICE);
  t.match(await shop.record(), { charged: "1500", voucher: { ceiling: "1500" } });
});

t.test(
  "a record from a backup, older than its claims, goes on from what the chain shows",
  async (t) => {
    const shop = openShop();
    await shop.put({ charged: "1000", state: stateOf({ totalClaimed: "4000" }) });
    const corrected = (await begin(shop, { ceiling: 4_500n })) as NotCovered;
    t.match(corrected, { state: { channelState: { chargedCumulativeAmount: "4000" } } });
    t.notOk("voucherState" in corrected.state!, "its voucher is no evidence of that total");
    await (await metered(shop, { ceiling: 5_000n })).settle(10n);
    t.match(await shop.record(), { charged: "4010", voucher: { ceiling: "5000" } });
    const even = openShop();
    await even.put({ charged: "1000", state: stateOf({ totalClaimed: "1000" }) });
    t.match(await begin(even, { ceiling: 5n }), {
      state: { voucherState: { signedMaxClaimable: "1000" } },
    });
  },
);

/** Another process writes first, once. */
class Contended extends OneProcessChannelStore {
  before: (() => Promise<void>) | undefined;
  override async save(...args: Parameters<ChannelStore["save"]>): Promise<boolean> {
    const { before } = this;
    this.before = undefined;
    await before?.();
    return super.save(...args);
  }
}

t.test("two processes on one record", async (t) => {
  const store = new Contended();
  const shop = openShop({ store });
  await shop.put();
  const change = (over: object) => async () => {
    const stored = await store.find(ID);
    if (stored) await store.save({ ...stored.channel, ...over }, stored.version);
  };
  store.before = change({ request: { id: "other", untilMs: NOW + 1 } });
  t.match(await begin(shop, { ceiling: 2_000n }), { reason: reason("channel_busy") });
  await change({ request: undefined })();
  store.before = change({ charged: "1001", voucher: { ceiling: "1001", signature: "0x" } });
  t.match(await begin(shop, { ceiling: 2_000n }), { reason: reason("cumulative_amount_mismatch") });
  const begun = await metered(shop, { ceiling: 2_001n });
  // Its claims are recorded while the work is done.
  store.before = change({ state: stateOf({ totalClaimed: "1001" }), stateReadMs: NOW });
  t.equal((await begun.settle(PRICE)).kind, "settled");
  t.match(await shop.record(), {
    charged: "2001",
    state: { totalClaimed: "1001" },
    stateReadMs: NOW,
  });
  const last = await metered(shop, { ceiling: 3_001n });
  store.before = change({ request: { id: "other", untilMs: NOW } });
  t.match(await last.settle(PRICE), { kind: "refused" });
  t.match(await shop.record(), { charged: "2001" });
});

t.test("a deposit's state is kept when older claims are recorded meanwhile", async (t) => {
  const store = new Contended();
  const shop = openShop({ store });
  shop.answers.settles = [{ extra: { channelState: stateOf({ balance: "20000" }) } }];
  const begun = await metered(shop, { type: "deposit", ceiling: PRICE, deposit: "10000" });
  store.before = async () => {
    const stored = await store.find(ID);
    if (stored)
      await store.save({ ...stored.channel, stateReadMs: NOW - 5, usedMs: 1 }, stored.version);
  };
  await begun.settle(PRICE);
  t.match(await shop.record(), { state: { balance: "20000" }, stateReadMs: NOW, usedMs: NOW });
});

t.test("a voucher that cannot be read, is not for these terms or is not signed", async (t) => {
  const shop = openShop();
  const sent = await paymentOf({ ceiling: PRICE });
  const bent = (payload: object) =>
    shop.charges.begin(
      { ...sent, payload: { ...sent.payload, payload: { ...sent.payload.payload, ...payload } } },
      async () => undefined,
    );
  t.same(await bent({ type: "x" }), { kind: "notCovered", reason: reason("payload_type") });
  t.same(await begin(shop, { ceiling: PRICE, terms: termsOf({ payTo: CONFIG.token }) }), {
    kind: "notCovered",
    reason: reason("receiver_mismatch"),
  });
  t.same(await begin(shop, { ceiling: PRICE, signature: `0x${"ab".repeat(64)}1b` }), {
    kind: "notCovered",
    reason: reason("voucher_signature"),
  });
  t.same(shop.answers.verified, []);
});

// Refunds.

t.test(
  "a refund is at most what is left after all charges, and claims these with it",
  async (t) => {
    const refund = async (amount: unknown, over: object = {}) => {
      const shop = openShop();
      await shop.put(over);
      shop.answers.verifies = [{ isValid: true, extra: { ...channelOf(over).state } }];
      let owed: unknown;
      shop.claims.sellsFor = () => undefined;
      shop.claims.owes = (payee) => void (owed = payee);
      shop.answers.settles = [
        {
          extra: {
            channelState: stateOf({ balance: "1000", totalClaimed: "1000", refundNonce: "1" }),
          },
        },
      ];
      const ceiling = BigInt(channelOf(over).charged);
      const answer = await begin(shop, {
        type: "refund",
        ceiling,
        ...(amount !== undefined && { amount }),
      });
      return { answer, shop, owed };
    };
    const { answer, shop, owed } = await refund(undefined);
    t.match(answer, {
      kind: "settled",
      kept: {
        status: 200,
        payload: JSON.stringify({ message: "Refund acknowledged", channelId: ID }),
      },
    });
    const sent = shop.answers.settled[0]?.payload;
    t.match(sent, {
      type: "refund",
      amount: "9000",
      refundNonce: "0",
      refundAuthorizerSignature: /^0x/,
      claimAuthorizerSignature: /^0x/,
      claims: [{ voucher: { channel: CONFIG, maxClaimableAmount: "1000" }, totalClaimed: "1000" }],
    });
    t.match(owed, { receiver: CONFIG.receiver, network: NETWORK });
    const record = await shop.record();
    t.match(record, {
      charged: "1000",
      signedRefund: { nonce: "0", amount: "9000" },
      state: { balance: "1000", refundNonce: "1" },
      request: undefined,
    });
    t.notOk("unclaimedSinceMs" in record, "all is claimed");
    t.match(shop.settled, [
      [
        "0",
        {
          extra: {
            channelState: { channelId: ID, balance: "1000", chargedCumulativeAmount: "1000" },
          },
        },
      ],
    ]);

    t.match((await refund("9000")).answer, { kind: "settled" });
    for (const amount of ["9001", "0", "x", 7, "-1"])
      t.match(
        (await refund(amount)).answer,
        { kind: "refused", response: { errorReason: reason("refund_amount_invalid") } },
        String(amount),
      );
    const none = await refund(undefined, { state: stateOf({ balance: "1000" }) });
    t.match(none.answer, { response: { errorReason: reason("refund_no_balance") } });
    t.notOk((await none.shop.record()).request, "the channel is free");
    const claimed = await refund("5", { state: stateOf({ totalClaimed: "1000" }) });
    t.match(claimed.shop.answers.settled[0]?.payload, { claims: [] });
    t.notOk("claimAuthorizerSignature" in (claimed.shop.answers.settled[0]?.payload ?? {}));
    t.equal(claimed.owed, undefined);
  },
);

t.test("the largest refund that was signed for a nonce is remembered", async (t) => {
  const shop = openShop();
  await shop.put();
  shop.answers.settles = [{ success: false, errorReason: "settlement_pending" }];
  const refund = async (amount: string) => {
    t.match(await begin(shop, { type: "refund", ceiling: PRICE, amount }), { kind: "refused" });
    return (await shop.record()).signedRefund;
  };
  t.same(await refund("5"), { nonce: "0", amount: "5" });
  t.same(await refund("9"), { nonce: "0", amount: "9" });
  t.same(await refund("7"), { nonce: "0", amount: "9" });
  await shop.put({ signedRefund: { nonce: "8", amount: "9000" } });
  t.same(await refund("6"), { nonce: "0", amount: "6" }, "of another nonce");
});

t.test("a refund whose time was over is not signed", async (t) => {
  const store = new Contended();
  const shop = openShop({ store });
  await shop.put();
  // After it has the channel, another request takes it.
  store.before = async () => {
    store.before = async () => {
      const stored = await store.find(ID);
      if (stored)
        await store.save(
          { ...stored.channel, request: { id: "other", untilMs: NOW } },
          stored.version,
        );
    };
  };
  t.match(await begin(shop, { type: "refund", ceiling: PRICE }), {
    response: { errorReason: reason("channel_busy") },
  });
  t.same(shop.answers.settled, []);
});

t.test("without a key of the seller's the facilitator signs", async (t) => {
  const shop = openShop({ receiverAuthorizer: undefined as never });
  await shop.put();
  await begin(shop, { type: "refund", ceiling: PRICE });
  t.notOk("refundAuthorizerSignature" in (shop.answers.settled[0]?.payload ?? {}));
});

t.test("a withdrawing payer may have its refund", async (t) => {
  const shop = openShop();
  await shop.put({ state: stateOf({ withdrawRequestedAt: 5 }) });
  shop.answers.verifies = [{ isValid: true, extra: { ...stateOf({ withdrawRequestedAt: 5 }) } }];
  t.match(await begin(shop, { type: "refund", ceiling: PRICE }), { kind: "settled" });
});

t.test(
  "a total that does not fit is answered from the record, without the facilitator",
  async (t) => {
    const shop = await charged();
    t.match(await begin(shop, { ceiling: 99_999n }), {
      reason: reason("cumulative_amount_mismatch"),
    });
    t.same(shop.answers.verified, []);
  },
);

t.test("a further deposit into a known channel is checked first", async (t) => {
  const shop = await charged();
  await metered(shop, { type: "deposit", ceiling: 2_000n, deposit: "5000" });
  t.match(shop.answers.verified, [{ payload: { type: "deposit" } }]);
  t.match(shop.answers.settled, [{ payload: { type: "deposit" } }]);
});

t.test(
  "of a contract, a lost response needs the same signature for the same ceiling",
  async (t) => {
    const config = { ...CONFIG, payerAuthorizer: NO_ADDRESS };
    const [one, other] = [`0x${"a1".repeat(65)}`, `0x${"a2".repeat(65)}`] as const;
    const shop = openShop();
    await shop.put({ id: idOf(config), config });
    const again = (ceiling: bigint, signature: `0x${string}`) =>
      begin(shop, { ceiling, config, signature });
    const first = await again(2_000n, one);
    if (first.kind !== "metered") throw new Error(first.kind);
    await first.settle(PRICE, RESPONSE);
    t.match(await again(1_999n, one), { kind: "notCovered" });
    t.match(await again(2_000n, other), { kind: "notCovered" });
    t.match(await again(2_000n, one), { kind: "settled" });
  },
);

t.test("a request ends once, and one whose record is gone charges nothing", async (t) => {
  const shop = await charged();
  const begun = await metered(shop, { ceiling: 2_000n });
  await begun.release();
  t.same(await begun.release(), {}, "a second time");
  const other = await charged();
  const lost = await metered(other, { ceiling: 2_000n });
  other.store.save = async () => false;
  other.store.find = async () => undefined;
  t.match(await lost.settle(PRICE), { kind: "refused" });
});

t.test(
  "a refund is given beside an earlier one, and keeps the voucher that it shows",
  async (t) => {
    const shop = openShop();
    await shop.put({ signedRefund: { nonce: "0", amount: "9500" } });
    const answer = await begin(shop, { type: "refund", ceiling: PRICE, amount: "5" });
    if (answer.kind !== "settled") throw new Error(answer.kind);
    t.match(await answer.delivered(), { response: { success: true } });
    const sent = shop.answers.settled[0]?.payload["voucher"] as { signature: string };
    t.same((await shop.record()).voucher, {
      ceiling: "1000",
      signature: sent.signature.toLowerCase(),
    });
  },
);

t.test("bytes are stored as text", async (t) => {
  const shop = await charged();
  const payload = Buffer.from([1, 255]);
  await (await metered(shop, { ceiling: 2_000n })).settle(PRICE, { ...RESPONSE, payload });
  t.match((await shop.record()).last?.response, { base64: "Af8=" });
});

// Goal: what was charged to channels is claimed in time, once, in few transactions; a bad claim holds up no other; and terms, vouchers and reports that do not fit are refused.
// Own process (it sets the clock of the process).
import { SettleError, VerifyError } from "@x402/core/types";
import t from "tap";
import { privateKeyToAccount } from "viem/accounts";
import type { Hex } from "viem";
import { FacilitatorFault } from "../../packages/paywall/src/answers.ts";
import { readState } from "../../packages/paywall/src/channel-facilitator.ts";
import { channelScheme, channelSettings } from "../../packages/paywall/src/channel-settings.ts";
import { OneProcessChannelStore, type Channel } from "../../packages/paywall/src/channel-store.ts";
import {
  isSigned,
  NO_ADDRESS,
  readUint128,
  readVoucher,
  reason,
  whyNotForTerms,
  type Voucher,
} from "../../packages/paywall/src/voucher.ts";
import { signVoucher } from "../helpers/batch-settlement.ts";
import {
  address,
  authorizer,
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

const MINUTE = 60_000;
const DUE = NOW + 10 * MINUTE;
const salted = (number: number): typeof CONFIG => ({
  ...CONFIG,
  salt: `0x${number.toString(16).padStart(64, "0")}`,
});
/** A channel of its own for each number. */
const numbered = (number: number, over: Partial<Channel> = {}): Partial<Channel> => {
  const config = over.config ?? salted(number);
  return { config, id: idOf(config), ...over };
};
const claimed = (total: string) => ({
  isValid: true,
  extra: { ...stateOf({ totalClaimed: total }) },
});
/** Runs what a wake begins, and waits for its end. */
async function wake({ claims }: Shop): Promise<void> {
  claims.wake();
  await (claims as unknown as { close(): Promise<void> }).close();
}
/** In a durable store, closing claims nothing by itself. */
class Durable extends OneProcessChannelStore {
  override readonly isDurable = true as never;
  forgotten: Date | undefined;
  override async forget(since: Date): Promise<void> {
    this.forgotten = since;
    await super.forget(since);
  }
}
const durableShop = (options: Parameters<typeof openShop>[0] = {}) =>
  openShop({ store: new Durable(), ...options });
const typesOf = ({ answers }: Shop) => answers.settled.map(({ payload }) => payload["type"]);
const claimsIn = ({ answers }: Shop) =>
  answers.settled.flatMap(({ payload }) =>
    payload["type"] === "claim" ? [(payload["claims"] as unknown[]).length] : [],
  );

t.test("charges are claimed together when the oldest has waited long enough", async (t) => {
  for (const atMs of [DUE - 1, DUE]) {
    const shop = durableShop();
    const stateReadMs = DUE;
    await shop.put(numbered(1, { stateReadMs }));
    await shop.put(numbered(2, { stateReadMs, unclaimedSinceMs: NOW + 5 * MINUTE }));
    await shop.put(numbered(3, { charged: "0", voucher: { ceiling: "0", signature: "0x" } }));
    shop.answers.verifies = [claimed("1000")];
    setTime(atMs);
    await wake(shop);
    t.same(claimsIn(shop), atMs < DUE ? [] : [2]);
  }
});

t.test("a claim names each voucher, and is signed by the seller's key", async (t) => {
  const shop = durableShop();
  await shop.put();
  shop.answers.verifies = [claimed("1000")];
  await shop.claims.claim();
  const [claim, settle] = shop.answers.settled;
  t.match(claim, {
    x402Version: 2,
    accepted: {
      scheme: "batch-settlement",
      network: NETWORK,
      asset: CONFIG.token,
      amount: "0",
      payTo: CONFIG.receiver,
      maxTimeoutSeconds: 0,
      extra: {},
    },
    payload: {
      type: "claim",
      claims: [
        {
          voucher: { channel: CONFIG, maxClaimableAmount: "1000" },
          signature: `0x${"ab".repeat(65)}`,
          totalClaimed: "1000",
        },
      ],
      claimAuthorizerSignature: /^0x[0-9a-f]{130}$/,
    },
  });
  t.match(settle, { payload: { type: "settle", receiver: CONFIG.receiver, token: CONFIG.token } });
  t.match(shop.answers.verified, [
    {
      accepted: {
        amount: "0",
        maxTimeoutSeconds: 60,
        extra: { receiverAuthorizer: CONFIG.receiverAuthorizer, withdrawDelay: 900 },
      },
      payload: { type: "refund", voucher: { channelId: ID, maxClaimableAmount: "1000" } },
    },
  ]);
  const record = await shop.record();
  t.match(record, { state: { totalClaimed: "1000" }, stateReadMs: NOW });
  t.notOk("unclaimedSinceMs" in record);
  t.same(shop.faults, []);
  const other = durableShop();
  await other.put(numbered(1, { config: { ...CONFIG, receiverAuthorizer: address("9") } }));
  await other.claims.claim();
  t.notOk(
    "claimAuthorizerSignature" in (other.answers.settled[0]?.payload ?? {}),
    "not for another's channel",
  );
  const upper = durableShop();
  await upper.put(
    numbered(1, {
      config: { ...CONFIG, receiverAuthorizer: authorizer.address.toLowerCase() as Hex },
    }),
  );
  await upper.claims.claim();
  t.ok(
    "claimAuthorizerSignature" in (upper.answers.settled[0]?.payload ?? {}),
    "however it is written",
  );
  const none = durableShop({ receiverAuthorizer: undefined as never });
  await none.put();
  none.answers.verifies = [claimed("1000")];
  await none.claims.claim();
  t.same([claimsIn(none), none.faults], [[1], []]);
  t.notOk("claimAuthorizerSignature" in (none.answers.settled[0]?.payload ?? {}));
});

t.test("a large charge and a withdrawing payer are claimed at once", async (t) => {
  const cases: [what: string, over: Partial<Channel>, isClaimed: boolean][] = [
    [
      "less than the set amount",
      { charged: "999999", voucher: { ceiling: "999999", signature: "0x" } },
      false,
    ],
    [
      "the set amount",
      { charged: "1000000", voucher: { ceiling: "1000000", signature: "0x" } },
      true,
    ],
    ["a withdrawal", { state: stateOf({ withdrawRequestedAt: 5 }) }, true],
  ];
  for (const [what, over, isClaimed] of cases) {
    const shop = durableShop();
    await shop.put(over);
    shop.claims.charged(await shop.record());
    await shop.claims.close();
    t.same(claimsIn(shop), isClaimed ? [1] : [], what);
  }
  const both = durableShop();
  await both.put(numbered(1));
  await both.put(numbered(2, { state: stateOf({ withdrawRequestedAt: 5 }) }));
  await wake(both);
  t.same(claimsIn(both), [1], "the other one waits");
  const nothing = durableShop();
  let turns = 0;
  nothing.store.takeTurn = async () => Boolean((turns += 1));
  nothing.claims.charged(channelOf({ charged: "0", state: stateOf({ withdrawRequestedAt: 5 }) }));
  await nothing.claims.close();
  t.equal(turns, 0, "nothing is charged");
});

t.test("a hundred rows fit one transaction; networks and authorizers are apart", async (t) => {
  const shop = durableShop();
  for (let number = 1; number <= 101; number += 1) await shop.put(numbered(number));
  shop.answers.verifies = [claimed("1000")];
  await shop.claims.claim();
  t.same(claimsIn(shop), [100, 1]);
  t.equal(shop.answers.verified.length, 101, "each state is read again");
  t.same(typesOf(shop), ["claim", "claim", "settle"]);
  const apart = durableShop();
  await apart.put(numbered(1));
  await apart.put(numbered(2, { network: "eip155:8453" }));
  await apart.put(numbered(3, { config: { ...salted(3), receiverAuthorizer: address("9") } }));
  await apart.put(
    numbered(4, {
      config: { ...salted(4), receiverAuthorizer: authorizer.address.toLowerCase() as Hex },
    }),
  );
  apart.answers.verifies = [claimed("1000")];
  await apart.claims.claim();
  t.same(
    claimsIn(apart).toSorted((a, b) => a - b),
    [1, 1, 2],
  );
  t.same(typesOf(apart).filter((type) => type === "settle").length, 2, "paid out on each network");
});

t.test("one that is refused is found by halves, and reported", async (t) => {
  const shop = durableShop();
  for (let number = 1; number <= 5; number += 1) await shop.put(numbered(number));
  const bad = idOf(salted(2));
  const settle = shop.answers.settle.bind(shop.answers);
  shop.answers.settle = async (payload, terms) => {
    const response = await settle(payload, terms);
    const rows = (payload.payload["claims"] ?? []) as { voucher: { channel: typeof CONFIG } }[];
    return rows.some(({ voucher }) => idOf(voucher.channel) === bad)
      ? { ...response, success: false, errorReason: "bad", errorMessage: "Why." }
      : response;
  };
  shop.answers.verifies = [claimed("1000")];
  await shop.claims.claim();
  t.same(shop.faults, [["bad Why.", `claiming from 1 payment channels, such as ${bad}`]]);
  t.same(claimsIn(shop), [5, 3, 2, 1, 1, 1, 2], "halves");
  const left = await shop.store.unclaimed();
  t.same(
    left.map(({ channel }) => channel.id),
    [bad],
  );
});

t.test("what may succeed later is not reported, unless a payer withdraws", async (t) => {
  const failing = async (settles: Shop["answers"]["settles"], ...rows: Partial<Channel>[]) => {
    const shop = durableShop();
    for (const row of rows) await shop.put(row);
    shop.answers.settles = settles;
    await shop.claims.claim();
    return {
      claims: claimsIn(shop),
      faults: shop.faults.map(([message]) => message),
      types: typesOf(shop),
    };
  };
  for (const errorReason of ["settlement_pending", "amount_below_floor", "gas_budget_exhausted"]) {
    const later = { success: false, errorReason };
    t.same(
      await failing([later], numbered(1), numbered(2)),
      { claims: [2], faults: [], types: ["claim"] },
      errorReason,
    );
    t.match(await failing([later], numbered(1, { state: stateOf({ withdrawRequestedAt: 5 }) })), {
      faults: [errorReason],
    });
  }
  const pending = { success: false, errorReason: "settlement_pending" };
  const withdrawing = numbered(2, { state: stateOf({ withdrawRequestedAt: 5 }) });
  t.match(await failing([pending], numbered(1), withdrawing), {
    claims: [2],
    faults: ["settlement_pending"],
  });
  t.match(await failing([{ success: false }], numbered(1)), { claims: [1], faults: [""] });
  t.match(await failing([new Error("down")], numbered(1), numbered(2)), {
    claims: [2],
    faults: ["It is not known whether the payment settled. Send the same proof again."],
  });
});

t.test("the chain decides whether a claim happened", async (t) => {
  const after = async (verifies: Shop["answers"]["verifies"], over: Partial<Channel> = {}) => {
    const shop = durableShop();
    await shop.put(over);
    shop.answers.verifies = verifies;
    await shop.claims.claim();
    return { record: await shop.record(), faults: shop.faults };
  };
  const open = { state: { totalClaimed: "0" }, unclaimedSinceMs: NOW };
  t.match((await after([new Error("down")])).record, open, "not reported: it is sent again");
  t.match((await after([{ isValid: false, invalidReason: "other" }])).record, open);
  const notShown = await after([claimed("999")], { unclaimedSinceMs: NOW - 5 });
  t.match(notShown, {
    record: { state: { totalClaimed: "999" }, unclaimedSinceMs: NOW - 5 },
    faults: [
      [
        "The facilitator reports a claim that the chain does not show.",
        `claiming from the payment channel ${ID}`,
      ],
    ],
  });
  for (const name of ["cumulative_exceeds_balance", "cumulative_below_claimed"]) {
    const beyond = await after([{ isValid: false, invalidReason: reason(name) }]);
    t.match(
      beyond,
      { record: { state: { balance: "10000", totalClaimed: "1000" } }, faults: [] },
      name,
    );
    t.notOk("unclaimedSinceMs" in beyond.record, name);
  }
  t.match((await after([claimed("1000")])).faults, []);
});

t.test("a charge that was made during the claim waits from then on", async (t) => {
  const shop = durableShop();
  await shop.put({ unclaimedSinceMs: NOW - 5 });
  const settle = shop.answers.settle.bind(shop.answers);
  shop.answers.settle = async (payload, terms) => {
    if (payload.payload["type"] === "claim")
      await shop.put({
        charged: "3000",
        voucher: { ceiling: "3000", signature: "0x" },
        unclaimedSinceMs: NOW - 5,
      });
    return settle(payload, terms);
  };
  shop.answers.verifies = [claimed("1000")];
  await shop.claims.claim();
  t.match(await shop.record(), {
    charged: "3000",
    unclaimedSinceMs: NOW,
    state: { totalClaimed: "1000" },
  });
});

t.test(
  "a record that another process changes is written again; one that is gone is left",
  async (t) => {
    const shop = durableShop();
    await shop.put();
    shop.answers.verifies = [claimed("1000")];
    const { store } = shop;
    const save = store.save.bind(store);
    let tries = 0;
    store.save = async (channel, version) => ((tries += 1) === 1 ? false : save(channel, version));
    await shop.claims.claim();
    t.equal(tries, 2);
    t.match(await shop.record(), { state: { totalClaimed: "1000" } });
    const gone = durableShop();
    await gone.put();
    gone.answers.verifies = [claimed("1000")];
    gone.store.find = async () => undefined;
    await gone.claims.claim();
    t.same(gone.faults, []);
  },
);

t.test("an old response is removed with the claim, a newer one stays", async (t) => {
  for (const untilMs of [NOW - 1, NOW]) {
    const shop = durableShop();
    await shop.put({ last: { untilMs } as never });
    shop.answers.verifies = [claimed("1000")];
    await shop.claims.claim();
    t.equal("last" in (await shop.record()), untilMs === NOW);
  }
});

t.test(
  "the state of a channel with claims to come is looked at again, to see a withdrawal",
  async (t) => {
    const looks = async (withdrawDelay: number, ageMs: number) => {
      const shop = durableShop();
      await shop.put(
        numbered(1, {
          config: { ...CONFIG, withdrawDelay },
          stateReadMs: NOW - ageMs,
          unclaimedSinceMs: NOW,
        }),
      );
      shop.answers.verifies = [
        { isValid: true, extra: { ...stateOf({ withdrawRequestedAt: 7 }) } },
      ];
      await wake(shop);
      return claimsIn(shop).length;
    };
    t.equal(await looks(900, 300_000), 1, "after five minutes");
    t.equal(await looks(900, 299_999), 0);
    t.equal(await looks(2_592_000, 300_000), 1);
    t.equal(await looks(300, 100_000), 1, "a third of a short delay");
    t.equal(await looks(300, 99_999), 0);
    const broken = durableShop();
    await broken.put({ stateReadMs: 0, unclaimedSinceMs: 0 });
    broken.answers.verifies = [new Error("down"), { isValid: false, invalidReason: "no" }];
    await broken.claims.claim();
    t.same(claimsIn(broken), [1], "it is claimed all the same");
    t.match(broken.faults[0], [/cannot be reached/, `reading the payment channel ${ID}`]);
    const refused = durableShop();
    await refused.put({ stateReadMs: 0 });
    refused.answers.verifies = [{ isValid: false, invalidReason: "no" }];
    await refused.claims.claim();
    t.same(refused.faults[0], ["no", `reading the payment channel ${ID}`]);
    const done = durableShop();
    await done.put({ stateReadMs: 0 });
    done.answers.verifies = [claimed("1000")];
    await done.claims.claim();
    t.same(claimsIn(done), [], "it was claimed already");
  },
);

t.test("eight channels are looked at together", async (t) => {
  const shop = durableShop();
  for (let number = 1; number <= 9; number += 1)
    await shop.put(numbered(number, { stateReadMs: 0 }));
  let [now, most] = [0, 0];
  const verify = shop.answers.verify.bind(shop.answers);
  shop.answers.verify = async (...sent) => {
    most = Math.max(most, (now += 1));
    await new Promise(setImmediate);
    now -= 1;
    return verify(...sent);
  };
  await shop.claims.claim();
  t.equal(most, 8);
  t.same(claimsIn(shop), [9], "all of them");
});

t.test("what was claimed is paid out, now or with the next claims", async (t) => {
  const shop = durableShop();
  const payee = { receiver: CONFIG.receiver, token: CONFIG.token, network: NETWORK };
  shop.claims.sellsFor(payee);
  shop.claims.sellsFor({
    ...payee,
    receiver: CONFIG.receiver.toUpperCase().replace("0X", "0x") as Hex,
  });
  const pay = async (answer: Shop["answers"]["settles"][number]) => {
    shop.answers.settled.length = 0;
    shop.faults.length = 0;
    shop.answers.settles = [answer];
    await shop.claims.claim();
    return { orders: shop.answers.settled.length, faults: shop.faults.map(([message]) => message) };
  };
  t.same(await pay({ success: false, errorReason: "no" }), { orders: 1, faults: ["no"] });
  t.same(await pay({ success: false }), { orders: 1, faults: [""] });
  t.same(await pay({ success: false, errorReason: "settlement_pending" }), {
    orders: 1,
    faults: [],
  });
  t.match(await pay(new Error("down")), { orders: 1, faults: [/not known/] });
  t.same(await pay({ success: false, errorReason: reason("nothing_to_settle") }), {
    orders: 1,
    faults: [],
  });
  t.same(await pay({}), { orders: 0, faults: [] }, "nothing is owed any more");
  shop.claims.owes(payee);
  t.same(await pay({}), { orders: 1, faults: [] });
  t.same(await pay({}), { orders: 0, faults: [] });
  shop.claims.sellsFor(payee);
  t.same(await pay({}), { orders: 0, faults: [] }, "known already");
});

t.test("one process at a time, and it gives its turn back", async (t) => {
  const shop = durableShop();
  await shop.put();
  t.equal(await shop.store.takeTurn("another process", 1_000), true);
  await shop.claims.claim();
  t.same(typesOf(shop), []);
  setTime(NOW + 1_000);
  const turns: number[] = [];
  const takeTurn = shop.store.takeTurn.bind(shop.store);
  shop.store.takeTurn = (holder, forMs) => {
    turns.push(forMs);
    return takeTurn(holder, forMs);
  };
  shop.store.forget = async () => {
    throw new Error("down");
  };
  await t.rejects(shop.claims.claim(), /down/);
  t.same(turns, [120_000, 120_000, 0], "also after a fault");
  await wake(shop);
  t.match(shop.faults.at(-1), ["down", "claiming from payment channels"]);
});

t.test("channels that were not used for thirty days are forgotten", async (t) => {
  const shop = durableShop();
  await shop.claims.claim();
  t.same((shop.store as Durable).forgotten, new Date(NOW - 30 * 86_400_000));
});

t.test("a store in memory is claimed to the end, and nothing begins after that", async (t) => {
  const memory = openShop();
  await memory.put();
  memory.answers.verifies = [claimed("1000")];
  await memory.claims.close();
  t.same(claimsIn(memory), [1]);
  const durable = durableShop();
  await durable.put();
  await durable.claims.close();
  t.same(claimsIn(durable), []);
  setTime(DUE);
  durable.claims.wake();
  await durable.claims.close();
  t.same(typesOf(durable), []);
});

t.test("wishes during a run are one more run", async (t) => {
  const shop = durableShop();
  let runs = 0;
  shop.store.unclaimed = async () => {
    runs += 1;
    if (runs === 1) for (let wishes = 0; wishes < 3; wishes += 1) shop.claims.wake();
    return [];
  };
  shop.claims.wake();
  for (let turns = 0; turns < 50; turns += 1) await new Promise(setImmediate);
  t.equal(runs, 2);
  shop.claims.wake();
  for (let turns = 0; turns < 50; turns += 1) await new Promise(setImmediate);
  t.equal(runs, 3, "and later ones begin another");
});

t.test("a charge without a voucher cannot be claimed, and holds up no other", async (t) => {
  const shop = durableShop();
  await shop.put({ voucher: undefined as never });
  await shop.put(numbered(1));
  shop.answers.verifies = [claimed("1000")];
  await shop.claims.claim();
  t.same(claimsIn(shop), [1]);
  t.same(shop.faults, []);
});

t.test("it looks each minute, or as often as it claims", async (t) => {
  const real = globalThis.setInterval;
  const timers: [work: () => void, ms: number][] = [];
  globalThis.setInterval = ((work: () => void, ms: number) => {
    timers.push([work, ms]);
    return real(() => undefined, 1_000_000);
  }) as never;
  try {
    for (const [claimEvery, ms] of [
      ["10m", MINUTE],
      ["30s", 30_000],
    ] as const) {
      const shop = durableShop({ claimEvery });
      let woken = 0;
      shop.claims.wake = () => void (woken += 1);
      shop.claims.start();
      shop.claims.start();
      t.same(
        timers.map(([, every]) => every),
        [ms],
        "one timer",
      );
      timers.pop()?.[0]();
      t.equal(woken, 1);
      await shop.claims.close();
    }
  } finally {
    globalThis.setInterval = real;
  }
});

// What the facilitator says.

t.test("a state is read exactly, or not at all", (t) => {
  const said = { balance: "10", totalClaimed: "5", withdrawRequestedAt: 0, refundNonce: "3" };
  t.same(readState(said), said);
  t.same(readState({ ...said, withdrawRequestedAt: "7", refundNonce: 3, more: 1 }), {
    ...said,
    withdrawRequestedAt: 7,
  });
  t.match(readState({ ...said, refundNonce: "9".repeat(78) }), { refundNonce: "9".repeat(78) });
  const bent: unknown[] = [
    undefined,
    null,
    "x",
    { ...said, balance: 10 },
    { ...said, balance: undefined },
    { ...said, totalClaimed: "-1" },
    { ...said, withdrawRequestedAt: -1 },
    { ...said, withdrawRequestedAt: 1.5 },
    { ...said, withdrawRequestedAt: undefined },
    { ...said, withdrawRequestedAt: 2 ** 53 },
    { ...said, refundNonce: undefined },
    { ...said, refundNonce: "" },
    { ...said, refundNonce: "1x" },
    { ...said, refundNonce: "x1" },
    { ...said, refundNonce: "9".repeat(79) },
  ];
  for (const one of bent) t.equal(readState(one), undefined, JSON.stringify(one));
  t.end();
});

t.test("a facilitator that does not answer as it should stops the request", async (t) => {
  const sent = await paymentOf({ ceiling: PRICE });
  const begin = async (verifies: Shop["answers"]["verifies"]) => {
    const shop = openShop();
    shop.answers.verifies = verifies;
    return shop.charges.begin(sent, async () => undefined);
  };
  const unreachable = new Error("down");
  await t.rejects(begin([unreachable]), {
    statusCode: 503,
    message: "The facilitator cannot be reached to verify the payment.",
    cause: unreachable,
  });
  await t.rejects(begin([{ isValid: true }]), {
    statusCode: 503,
    message: "The facilitator does not report the state of the channel.",
  });
  t.match(await begin([{ isValid: false }]), { reason: "invalid_payload" });
  t.match(await begin([new VerifyError(400, { isValid: false, invalidReason: "why" })]), {
    reason: "why",
  });
  await t.rejects(begin([new VerifyError(500, { isValid: false })]), FacilitatorFault);

  const settle = async (answer: Shop["answers"]["settles"][number]) => {
    const shop = openShop();
    shop.answers.settles = [answer];
    return shop.charges.begin(
      await paymentOf({ type: "deposit", ceiling: PRICE, deposit: "10000" }),
      async () => undefined,
    );
  };
  await t.rejects(settle(unreachable), FacilitatorFault);
  await t.rejects(settle(unreachable), { statusCode: 502, message: /^It is not known/ });
  const refusal = new SettleError(400, {
    success: false,
    errorReason: "no",
    transaction: "",
    network: NETWORK,
  } as never);
  t.match(await settle(refusal), {
    kind: "refused",
    response: { success: false, errorReason: "no" },
  });
});

// The seller's options.

t.test("the options of channels", (t) => {
  const store = new OneProcessChannelStore();
  const read = (options: object) => channelSettings({ store, ...options });
  t.match(read({}), {
    authorizer: undefined,
    withdrawDelaySeconds: 86_400,
    claimEveryMs: 600_000,
    claimAboveAtomic: 1_000_000n,
    minDepositAtomic: undefined,
  });
  t.match(read({ withdrawDelay: "15m", claimEvery: "5m", claimAbove: "0.5", minDeposit: "2" }), {
    withdrawDelaySeconds: 900,
    claimEveryMs: 300_000,
    claimAboveAtomic: 500_000n,
    minDepositAtomic: 2_000_000n,
  });
  t.match(read({ withdrawDelay: "30d" }), { withdrawDelaySeconds: 2_592_000 });
  for (const [options, message] of [
    [{ withdrawDelay: "899s" }, /from "15m" to "30d"/],
    [{ withdrawDelay: "2592001s" }, /such as "30m"|from "15m" to "30d"/],
    [{ withdrawDelay: "31d" }, /from "15m" to "30d"/],
    [{ withdrawDelay: "soon" }, /channels.withdrawDelay/],
    [{ withdrawDelay: "15m", claimEvery: "301s" }, /at most a third/],
    [{ claimEvery: "often" }, /channels.claimEvery/],
    [{ claimAbove: "0" }, /channels.claimAbove/],
    [{ minDeposit: "x" }, /channels.minDeposit/],
  ] as const)
    t.throws(() => read(options), { message }, JSON.stringify(options));
  t.end();
});

t.test("what the terms announce", async (t) => {
  const store = new OneProcessChannelStore();
  const announce = (options: object, announced: object = {}, amount = "1000") =>
    channelScheme(channelSettings({ store, ...options })).announcedExtra?.(
      { amount },
      announced as Record<string, unknown>,
    );
  const own = { receiverAuthorizer: authorizer as never };
  t.match(channelScheme(channelSettings({ store })), { name: "batch-settlement", isMetered: true });
  t.same(announce(own), {
    receiverAuthorizer: authorizer.address,
    withdrawDelay: 86_400,
    minDeposit: "10000",
  });
  t.match(announce({ ...own, minDeposit: "0.005" }), { minDeposit: "5000" });
  t.match(announce({ ...own, minDeposit: "0.0005" }), { minDeposit: "1000" }, "at least the price");
  t.match(announce({}, { receiverAuthorizer: address("7") }), { receiverAuthorizer: address("7") });
  t.match(announce(own, { receiverAuthorizer: address("7") }), {
    receiverAuthorizer: authorizer.address,
  });
  for (const receiverAuthorizer of [undefined, 7, "0x12", NO_ADDRESS])
    t.equal(announce({}, { receiverAuthorizer }), undefined, String(receiverAuthorizer));
  const signed = await channelSettings({ store, ...own }).authorizer?.sign({
    domain: {},
    types: { A: [{ name: "a", type: "uint256" }] },
    primaryType: "A",
    message: { a: 1n },
  });
  t.match(signed, /^0x[0-9a-f]{130}$/);
});

// What a payer sends.

const SIGNATURE = `0x${"AB".repeat(65)}`;
const PAYLOAD = {
  type: "voucher",
  channelConfig: CONFIG,
  voucher: {
    channelId: ID.toUpperCase().replace("0X", "0x"),
    maxClaimableAmount: "5",
    signature: SIGNATURE,
  },
};

t.test("a payload is a voucher, or it is named what is wrong", (t) => {
  t.same(
    readVoucher({
      ...PAYLOAD,
      channelConfig: { ...CONFIG, more: 1 },
      amount: "7",
      deposit: { amount: "9" },
    }),
    {
      type: "voucher",
      id: ID,
      config: CONFIG,
      ceiling: 5n,
      signature: SIGNATURE.toLowerCase(),
      amount: "7",
      deposited: 0n,
    },
  );
  t.match(readVoucher({ ...PAYLOAD, type: "deposit", deposit: { amount: "9" } }), {
    type: "deposit",
    deposited: 9n,
  });
  t.match(readVoucher({ ...PAYLOAD, type: "deposit" }), { deposited: 0n });
  t.match(readVoucher({ ...PAYLOAD, type: "refund" }), { type: "refund", deposited: 0n });
  const voucher = (over: object) => ({ ...PAYLOAD, voucher: { ...PAYLOAD.voucher, ...over } });
  const config = (over: object) => ({ ...PAYLOAD, channelConfig: { ...CONFIG, ...over } });
  for (const withdrawDelay of [0, 2 ** 40 - 1])
    t.match(readVoucher(config({ withdrawDelay })), { config: { withdrawDelay } });
  t.match(readVoucher(voucher({ signature: `0x${"ab".repeat(4_096)}` })), { ceiling: 5n });
  const bent: [object, string][] = [
    [{ ...PAYLOAD, type: "claim" }, reason("payload_type")],
    [{ ...PAYLOAD, type: undefined }, reason("payload_type")],
    [{ ...PAYLOAD, voucher: "x" }, "invalid_payload"],
    [{ ...PAYLOAD, channelConfig: null }, "invalid_payload"],
    [{ ...PAYLOAD, type: "deposit", deposit: { amount: 9 } }, "invalid_payload"],
    ...["-1", 5, undefined, ["5"], "05", "", String(2n ** 128n)].map(
      (maxClaimableAmount): [object, string] => [
        voucher({ maxClaimableAmount }),
        "invalid_payload",
      ],
    ),
    ...[undefined, 7, "0x12", `${ID}00`, `x${ID}`, [ID]].map((channelId): [object, string] => [
      voucher({ channelId }),
      reason("channel_id_invalid"),
    ]),
    ...[
      undefined,
      7,
      "0x",
      `0x${"ab".repeat(64)}`,
      `${SIGNATURE}a`,
      [SIGNATURE],
      `0x${"ab".repeat(4_097)}`,
    ].map((signature): [object, string] => [voucher({ signature }), reason("voucher_signature")]),
    ...["payer", "payerAuthorizer", "receiver", "receiverAuthorizer", "token"].flatMap(
      (name): [object, string][] =>
        ["0x12", undefined, `${CONFIG.receiver}0`, `x${CONFIG.receiver}`, [CONFIG.receiver]].map(
          (value) => [config({ [name]: value }), "invalid_payload"],
        ),
    ),
    ...["900", 900.5, -1, 2 ** 40, NaN, undefined].map((withdrawDelay): [object, string] => [
      config({ withdrawDelay }),
      "invalid_payload",
    ]),
    ...[undefined, 7, "0x12", [CONFIG.salt]].map((salt): [object, string] => [
      config({ salt }),
      "invalid_payload",
    ]),
  ];
  for (const [payload, why] of bent)
    t.equal(readVoucher(payload as Record<string, unknown>), why, JSON.stringify(payload));
  t.equal(readUint128(String(2n ** 128n - 1n)), 2n ** 128n - 1n);
  t.end();
});

t.test("a voucher is for these terms, in the channel that its id names", (t) => {
  const why = (over: object = {}, terms: object = {}, known?: typeof CONFIG) =>
    whyNotForTerms({ id: ID, config: CONFIG, ...over } as Voucher, termsOf(terms), known);
  t.equal(why(), undefined);
  t.equal(why({}, {}, CONFIG), undefined, "the stored config saves the hash");
  t.equal(why({ id: idOf(salted(9)) }), reason("channel_id_mismatch"));
  t.equal(why({ config: salted(9) }), reason("channel_id_mismatch"));
  const upper = CONFIG.receiver.toUpperCase().replace("0X", "0x") as Hex;
  t.equal(
    why({ config: { ...CONFIG, receiver: upper } }, {}, CONFIG),
    undefined,
    "however it is written",
  );
  for (const [name, value] of Object.entries({
    ...salted(9),
    payer: address("8"),
    withdrawDelay: 901,
  }))
    if (value !== CONFIG[name as keyof typeof CONFIG])
      t.equal(
        why({ config: { ...CONFIG, [name]: value } }, {}, CONFIG),
        reason("channel_id_mismatch"),
        name,
      );
  t.equal(why({}, { payTo: address("8") }), reason("receiver_mismatch"));
  t.equal(why({}, { asset: address("8") }), reason("token_mismatch"));
  const { extra } = termsOf();
  t.equal(
    why({}, { extra: { ...extra, receiverAuthorizer: address("8") } }),
    reason("receiver_authorizer_mismatch"),
  );
  t.equal(why({}, { extra: { ...extra, withdrawDelay: 901 } }), reason("withdraw_delay_mismatch"));
  t.equal(
    why({}, { extra: { ...extra, withdrawDelay: "900" } }),
    reason("withdraw_delay_mismatch"),
  );
  t.end();
});

const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;

t.test("a signature is the payer's, in the form that the contract takes", async (t) => {
  const signature = await signVoucher({ chainId: 5_042_002 }, payer, ID, 5n);
  const check = (over: object = {}, network = NETWORK) =>
    isSigned({ id: ID, config: CONFIG, ceiling: 5n, signature, ...over } as Voucher, network);
  t.equal(await check(), true);
  t.equal(
    await check({ config: { ...CONFIG, payerAuthorizer: payer.address.toLowerCase() } }),
    true,
  );
  t.equal(await check({ ceiling: 6n }), false);
  t.equal(await check({ id: idOf(salted(9)) }), false);
  t.equal(await check({}, "eip155:1"), false, "of another chain");
  t.equal(await check({ config: { ...CONFIG, payerAuthorizer: address("8") } }), false);
  const stranger = privateKeyToAccount(`0x${"33".repeat(32)}`);
  t.equal(
    await check({ signature: await signVoucher({ chainId: 5_042_002 }, stranger, ID, 5n) }),
    false,
  );
  const s = ORDER - BigInt(`0x${signature.slice(66, 130)}`);
  const v = signature.endsWith("1b") ? "1c" : "1b";
  const highS = `${signature.slice(0, 66)}${s.toString(16).padStart(64, "0")}${v}`;
  for (const bent of [
    highS,
    `${signature}00`,
    `${signature}1b`,
    signature.slice(0, 130),
    signature.replace(/1b$/, "00").replace(/1c$/, "01"),
    `0x${"00".repeat(64)}1b`,
  ])
    t.equal(await check({ signature: bent }), false, bent);
});

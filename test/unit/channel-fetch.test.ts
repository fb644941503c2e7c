// Goal: a fetch through a payment channel signs exactly what was reserved, never shows a voucher whose outcome is known, and says "charged", "not charged" or "not known" as the seller's answer means it.
import t from "tap";
import type { Address, Hex } from "viem";
import { NETWORKS } from "../../server/core/networks.ts";
import { ApiError } from "../../server/errors.ts";
import {
  channelBusy,
  confirmThroughChannel,
  shownBefore,
  signForChannel,
  type ChannelPayment,
} from "../../server/plugins/x402-client/channel.ts";
import type { UpstreamContent } from "../../server/plugins/x402-client/content.ts";
import type { ProofResponse } from "../../server/plugins/x402-client/deliver.ts";
import type { Job } from "../../server/plugins/x402-client/job.ts";
import { configOf, type ChannelOrder } from "../../server/schemes/batch-settlement/paying.ts";

const [network] = NETWORKS;
if (!network) throw new Error("no network");
const hex = (digit: string, bytes = 32): Hex => `0x${digit.repeat(2 * bytes)}`;
const address = (digit: string): Address => `0x${digit.repeat(40)}`;
const WALLET = address("1");
const KEY = { agentId: "agt_1", paymentId: "pay_1" };
const OFFER = {
  receiverAuthorizer: address("3"),
  withdrawDelay: 900,
  minDepositAtomic: 0n,
  signer: address("4"),
};
const SALT = hex("5");
const config = configOf(WALLET, {
  receiver: address("2"),
  token: network.usdc.address,
  salt: SALT,
  ...OFFER,
});
const order: ChannelOrder = { chainId: network.chainId, config, ceiling: 300n };
const SIGNED = { voucher: hex("6"), deposit: hex("7") };
const DEPOSIT = { amount: 1_000n, validBefore: 99n, salt: hex("8") };

interface World {
  unmade?: { deposit: ChannelOrder["deposit"]; signature: Hex };
  found?: object;
  isTaken?: boolean;
  isCorrected?: boolean;
  hasCorrected?: true;
}

/** A job that records what it calls. */
function jobIn(world: World = {}) {
  const calls: unknown[] = [];
  const warnings: string[] = [];
  const record =
    (name: string, result?: unknown) =>
    async (...args: unknown[]) => {
      calls.push([name, ...args]);
      return result;
    };
  const job = {
    caller: { id: KEY.agentId, walletAddress: WALLET },
    target: { url: new URL("https://a.example/api") },
    input: {},
    ...(world.hasCorrected && { hasCorrected: true }),
    deps: {
      settleWaitMs: 0,
      channels: {
        newSalt: () => DEPOSIT.salt,
        sign: record("sign", SIGNED),
        accept: record("accept"),
        unmadeDeposit: record("unmadeDeposit", world.unmade),
        find: record("find", world.found),
        again: record("again", world.isTaken ?? true),
        followDeposit: (...args: unknown[]) => calls.push(["followDeposit", ...args]),
        correct: record("correct", world.isCorrected ?? false),
      },
      steps: {
        signOrRelease: (key: unknown, _call: unknown, sign: () => unknown) => {
          calls.push(["signOrRelease", key]);
          return sign();
        },
        storeOrRelease: (key: unknown, store: () => unknown) => {
          calls.push(["storeOrRelease", key]);
          return store();
        },
      },
      log: { warn: (_fields: object, message: string) => warnings.push(message) },
    },
  } as unknown as Job;
  return { job, calls, warnings };
}

t.test("what is signed is what was reserved", async (t) => {
  const channel = {
    id: hex("9"),
    salt: SALT,
    ceiling: "300",
    balance: "1000",
    charged: "250",
    before: "260",
  };
  const sign = async (more: object, world: World = {}) => {
    const { job, calls } = jobIn(world);
    const reserved = { ...KEY, validBeforeSeconds: 99n, channel: { ...channel, ...more } };
    const chosen = { network, payTo: config.receiver, asset: config.token, amountAtomic: 50n };
    const through = await signForChannel(job, {} as never, OFFER, { reserved, chosen } as never);
    return { through, calls };
  };
  const base = { id: hex("9"), chargedBefore: 250n, priceAtomic: 50n };

  const first = await sign({});
  t.same(first.through, {
    ...base,
    order,
    signed: SIGNED,
    balanceAtomic: 1_000n,
    depositId: undefined,
  });
  t.same(first.calls, [
    ["signOrRelease", KEY],
    ["sign", KEY.agentId, order, "https://a.example"],
    ["storeOrRelease", KEY],
    ["accept", KEY, { order, signed: SIGNED, depositId: undefined }],
    ["unmadeDeposit", undefined, order],
  ]);

  const before = { ceiling: 260n, voucher: hex("a") };
  const evidence = await sign({ voucher: hex("a") });
  t.same(evidence.through.order, { ...order, before }, "the voucher before it is the evidence");

  const deposited = await sign({ deposit: "1000", depositId: "pay_2" });
  t.same(deposited.through, {
    ...base,
    order: { ...order, deposit: DEPOSIT },
    signed: SIGNED,
    balanceAtomic: 2_000n,
    depositId: "pay_2",
  });
  t.notOk(deposited.calls.some((call) => (call as string[])[0] === "unmadeDeposit"));

  const unmade = { deposit: { amount: 5n, validBefore: 6n, salt: hex("b") }, signature: hex("c") };
  const again = await sign({ openDepositId: "pay_3" }, { unmade });
  t.same(again.through, {
    ...base,
    order: { ...order, deposit: unmade.deposit },
    signed: { ...SIGNED, deposit: unmade.signature },
    balanceAtomic: 1_000n,
    depositId: "pay_3",
  });
  t.same((await sign({ openDepositId: "pay_3" })).through.depositId, undefined, "it was made");
});

/** The code and the members of an error. */
const problemOf = (error: unknown) => {
  if (!(error instanceof ApiError)) throw error;
  return { code: error.code, ...error.extra };
};
const rejected = (work: Promise<unknown>) => work.then(() => "nothing", problemOf);

t.test("a voucher is shown again only while its outcome is not known", async (t) => {
  const through = { id: hex("9"), order, signed: SIGNED, wasShown: true };
  const show = (found: object | undefined, wasDelivered = false, isTaken = true) => {
    const { job, calls } = jobIn({ ...(found && { found }), isTaken });
    return { shown: shownBefore(job, KEY.paymentId, wasDelivered), calls };
  };
  t.equal(await show(undefined).shown, undefined);
  const open = show({ ...through, chargedAtomic: null });
  t.same(await open.shown, through);
  t.match(open.calls, [
    ["find", KEY],
    ["again", KEY, Number],
  ]);
  const unknown = show({ ...through, chargedAtomic: null }, true);
  t.same(await unknown.shown, through);
  t.match(unknown.calls, open.calls, "another request may have the channel");
  for (const chargedAtomic of [0n, 5n]) {
    const stored = show({ ...through, chargedAtomic }, true);
    t.same(await stored.shown, through, "its response is stored");
    t.same(stored.calls, [["find", KEY]], "and nothing is shown");
  }
  t.match(await rejected(show({ ...through, chargedAtomic: 0n }).shown), {
    paid: false,
    paymentId: "pay_1",
  });
  t.match(await rejected(show({ ...through, chargedAtomic: 5n }).shown), {
    code: "paid_upstream_failed",
    paymentId: "pay_1",
    paid: true,
    amountPaid: "0.000005",
    txHash: null,
    delivered: false,
    upstreamStatus: null,
  });
  t.match(await rejected(show({ ...through, chargedAtomic: null }, false, false).shown), {
    code: "idempotency_in_progress",
  });
  for (const wasDelivered of [false, true]) {
    const undecided = show({ ...through, chargedAtomic: null, undecided: "Why." }, wasDelivered);
    const answer = await undecided.shown.catch((error: unknown) => error);
    t.same(problemOf(answer), {
      code: "charge_not_known",
      paymentId: "pay_1",
      txHash: null,
      delivered: false,
      upstreamStatus: null,
    });
    t.match(answer, { message: /^Why\. .* Do not pay again/, status: 502 });
    t.same(undecided.calls, [["find", KEY]], "and nothing is shown");
  }
});

t.test("while the channel is being closed, its payments say when to come back", async (t) => {
  const through = { id: hex("9"), order, signed: SIGNED, wasShown: true, chargedAtomic: null };
  const waits = async (returnsAt: Date | null) => {
    const { job, calls } = jobIn({ found: { ...through, closing: { returnsAt } } });
    const answer = await shownBefore(job, KEY.paymentId, false).catch((error: unknown) => error);
    t.match(answer, { code: "idempotency_in_progress", message: /is being closed/ });
    t.same(calls, [["find", KEY]], "and nothing is shown");
    return Number((answer as ApiError).headers["retry-after"]);
  };
  t.equal(await waits(null), 60);
  t.equal(await waits(new Date(Date.now() - 5_000)), 60, "the service looks each minute");
  const afterDelay = await waits(new Date(Date.now() + 900_000));
  t.ok(afterDelay > 950 && afterDelay <= 960, String(afterDelay));
});

// The seller's answer.

const seenWith = (over: Partial<UpstreamContent> = {}): UpstreamContent => ({
  status: 200,
  headers: {},
  contentType: "text/plain",
  text: "hello",
  truncated: false,
  bytes: 5,
  ...over,
});
const payment = (over: object = {}): ChannelPayment =>
  ({
    key: KEY,
    facts: {
      network: network.id,
      payTo: config.receiver,
      amountAtomic: 50n,
      paymentId: KEY.paymentId,
    },
    remainingAtomic: 1_000_000n,
    through: {
      id: hex("9"),
      order,
      signed: SIGNED,
      chargedBefore: 250n,
      balanceAtomic: 2_000_000n,
      priceAtomic: 50n,
      depositId: undefined,
      ...over,
    },
  }) as unknown as ChannelPayment;
const report = (extra: object) => ({ paymentResponse: { success: true, extra } });

t.test("a delivered response says what was charged", async (t) => {
  const cases: {
    what: string;
    seen?: Partial<UpstreamContent>;
    charged: bigint;
    reason?: string;
    body: object;
    payment?: string;
  }[] = [
    {
      what: "less than the price",
      seen: report({ chargedAmount: "7" }),
      charged: 7n,
      body: {
        paid: true,
        amountPaid: "0.000007",
        txHash: null,
        channel: { id: hex("9"), balance: "2", charged: "0.000257" },
      },
    },
    {
      what: "nothing",
      seen: report({ chargedAmount: "0" }),
      charged: 0n,
      body: { paid: false, amountPaid: "0", channel: { charged: "0.00025" } },
      payment: "none",
    },
    {
      what: "no report: the price",
      charged: 50n,
      body: { paid: true, amountPaid: "0.00005", channel: { charged: "0.0003" } },
    },
    {
      what: "a report beyond the rules: the price, and the channel is used no more",
      seen: report({ chargedAmount: "51" }),
      charged: 50n,
      reason: "seller_broke_rules",
      body: { paid: true, amountPaid: "0.00005" },
    },
    {
      what: "a response that we cut off at our own limit",
      seen: { truncated: true, truncatedBy: "size" as never },
      charged: 50n,
      body: { paid: true },
    },
  ];
  for (const { what, seen, charged, reason = null, body, payment: kind = "settled" } of cases) {
    const { job, calls, warnings } = jobIn();
    const shown: ProofResponse = { kind: "delivered", seen: seenWith(seen) };
    const confirmed = await confirmThroughChannel(job, payment(), shown);
    t.same(calls, [], what);
    t.same(confirmed?.voucher, { chargedAtomic: charged, isRefused: false, reason }, what);
    t.same(warnings, reason === null ? [] : ["a seller broke a channel's rules"], what);
    t.match(
      confirmed,
      {
        result: { kind: "done", body },
        delivery: { upstreamStatus: 200, delivered: true },
        payment: kind,
        seen: shown.seen,
      },
      what,
    );
  }
});

t.test("a failed request charges nothing, or it is not known what it charged", async (t) => {
  const refused = seenWith({ status: 402 });
  const cases: {
    what: string;
    shown: ProofResponse;
    kind: "failed" | "unknown";
    error: object;
    status?: number | null;
  }[] = [
    {
      what: "refused",
      shown: { kind: "failed", how: "refused", why: "It refused", seen: refused },
      kind: "failed",
      error: {
        code: "settlement_failed",
        paid: false,
        amountPaid: "0",
        txHash: null,
        upstreamStatus: 402,
        suggestion: /still counts as spent/,
      },
      status: 402,
    },
    {
      what: "rejected",
      shown: { kind: "failed", how: "rejected", why: "It failed", seen: seenWith({ status: 500 }) },
      kind: "failed",
      error: { code: "upstream_error", paid: false, thirdParty: Object },
      status: 500,
    },
    {
      what: "too late",
      shown: { kind: "failed", how: "timeout", why: "Too late" },
      kind: "unknown",
      error: { code: "payment_status_unknown", upstreamStatus: null },
    },
    {
      what: "broken",
      shown: { kind: "failed", how: "broken", why: "It closed" },
      kind: "unknown",
      error: { code: "payment_status_unknown" },
    },
    ...(["connection", "timeout"] as const).map((truncatedBy) => ({
      what: `broken off: ${truncatedBy}`,
      shown: {
        kind: "delivered",
        seen: seenWith({ truncated: true, truncatedBy }),
      } as ProofResponse,
      kind: "unknown" as const,
      error: { code: "payment_status_unknown", upstreamStatus: 200 },
      status: 200,
    })),
  ];
  for (const { what, shown, kind, error, status = null } of cases) {
    const { job, calls } = jobIn();
    const confirmed = await confirmThroughChannel(job, payment(), shown);
    t.same(calls, [], what);
    const isRefused = kind === "failed";
    t.same(confirmed?.voucher, { chargedAtomic: null, isRefused, reason: null }, what);
    t.match(
      confirmed,
      { delivery: { upstreamStatus: status, delivered: false }, payment: "none" },
      what,
    );
    const result = confirmed?.result as { kind: string; error: ApiError };
    t.equal(result.kind, kind, what);
    t.match(
      { ...problemOf(result.error) },
      {
        ...error,
        paymentId: KEY.paymentId,
        network: network.id,
        payTo: config.receiver,
        delivered: false,
        channel: { id: hex("9"), balance: "2", charged: "0.00025" },
      },
      what,
    );
    const said = shown.kind === "failed" ? shown.why : "The target broke off its response";
    t.match(result.error.message, said, what);
    if (kind === "failed") t.match(result.error.message, "0.00005 USDC", what);
  }
});

t.test("a seller's total is followed once in a fetch", async (t) => {
  const correction = { total: "260" };
  const shown: ProofResponse = {
    kind: "failed",
    how: "refused",
    why: "It refused",
    seen: seenWith({ status: 402 }),
    correction,
  };
  for (const wasShown of [true, undefined]) {
    const { job, calls } = jobIn({ isCorrected: true });
    t.equal(
      await confirmThroughChannel(job, payment({ wasShown }), shown),
      undefined,
      "made again",
    );
    t.same(calls, [["correct", KEY, { order, correction, wasShown: wasShown === true }]]);
    t.equal(job.hasCorrected, true);
  }
  const voucher = { chargedAtomic: null, isRefused: true, reason: null };
  const second = jobIn({ isCorrected: true, hasCorrected: true });
  t.match(await confirmThroughChannel(second.job, payment(), shown), {
    result: { kind: "failed" },
    voucher,
  });
  t.same(second.calls, [], "not a second time");
  const unproven = jobIn();
  t.match(await confirmThroughChannel(unproven.job, payment(), shown), {
    result: { kind: "failed" },
    voucher,
  });
  t.same(unproven.calls, [["correct", KEY, { order, correction, wasShown: false }]]);
  for (const how of ["refused", "rejected"] as const) {
    const again = await confirmThroughChannel(jobIn().job, payment({ wasShown: true }), {
      ...shown,
      how,
    });
    t.match(
      again,
      {
        result: {
          kind: "failed",
          error: {
            code: "charge_not_known",
            message: /^It refused\. The same voucher .* Do not pay/,
          },
        },
        voucher: { chargedAtomic: null, isRefused: false },
      },
      "a refusal does not say what became of the request that showed the voucher first",
    );
    const { extra } = (again as { result: { error: ApiError } }).result.error;
    t.match(extra, { paymentId: KEY.paymentId, upstreamStatus: 402, delivered: false });
    t.notOk("paid" in extra || "amountPaid" in extra, "it claims nothing");
  }
});

t.test("a deposit that was shown is followed, whatever came of the request", async (t) => {
  const follow = async (shown: ProofResponse) => {
    const { job, calls } = jobIn();
    await confirmThroughChannel(job, payment({ depositId: "pay_2" }), shown);
    return calls[0];
  };
  const transaction = hex("d");
  const paymentResponse = { success: true, transaction };
  t.same(await follow({ kind: "delivered", seen: seenWith({ paymentResponse }) }), [
    "followDeposit",
    "pay_2",
    transaction,
  ]);
  t.same(await follow({ kind: "failed", how: "broken", why: "x" }), [
    "followDeposit",
    "pay_2",
    undefined,
  ]);
});

t.test("the answer while another request has the channel", async (t) => {
  for (const paymentId of ["pay_2", null]) {
    const error = channelBusy(paymentId);
    t.match(problemOf(error), { code: "channel_busy", channelBusyWith: paymentId });
    t.same(error.headers, { "retry-after": "1" });
  }
});

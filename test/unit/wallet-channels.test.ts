// Goal: a wallet follows a seller's total only on its own signature or the chain's word, shows a voucher again exactly as it was, and closes a channel step by step, whatever the seller and the chain answer.
import {
  decodePaymentSignatureHeader,
  encodePaymentRequiredHeader,
  encodePaymentResponseHeader,
} from "@x402/core/http";
import t from "tap";
import type { Address, Hex } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import type { Authorization, SignedAuthorization } from "../../server/core/authorization.ts";
import { NETWORKS } from "../../server/core/networks.ts";
import type { OutboundRequest, OutboundResponse } from "../../server/infra/outbound/outbound.ts";
import { Closing, nextStep, type ClosingChannel } from "../../server/plugins/channels/closing.ts";
import { askForRefund } from "../../server/plugins/channels/refund.ts";
import { WalletChannels } from "../../server/plugins/channels/wallet.ts";
import type { StoredVoucher } from "../../server/plugins/channels/wallet-store.ts";
import type { SettlementRow } from "../../server/plugins/settlement/types.ts";
import type { ChannelState } from "../../server/schemes/batch-settlement/index.ts";
import {
  channelIdAt,
  configOf,
  depositIn,
  depositOf,
  payloadOf,
  type ChannelOrder,
} from "../../server/schemes/batch-settlement/paying.ts";
import { signVoucher } from "../helpers/batch-settlement.ts";

const [network, elsewhere] = NETWORKS;
if (!network || !elsewhere) throw new Error("no networks");
const { chainId } = network;
const signer = privateKeyToAccount(`0x${"11".repeat(32)}`);
const stranger = privateKeyToAccount(`0x${"22".repeat(32)}`);
const address = (digit: string): Address => `0x${digit.repeat(40)}`;
const hex = (digit: string, bytes = 32): Hex => `0x${digit.repeat(2 * bytes)}`;

const WALLET: Address = "0xABCDEF0123456789abcdef0123456789ABCDEF01";
const config = configOf(WALLET, {
  receiver: address("2"),
  token: network.usdc.address,
  receiverAuthorizer: address("3"),
  withdrawDelay: 900,
  signer: signer.address.toLowerCase() as Address,
  salt: hex("4"),
});
const id = channelIdAt(chainId, config);
const KEY = { agentId: "agt_1", paymentId: "pay_1" };
const order: ChannelOrder = { chainId, config, ceiling: 300n };
const DEPOSIT = { amount: 1_000n, validBefore: 99n, salt: hex("5") };
const voucherFor = (ceiling: bigint, by = signer): Promise<Hex> =>
  signVoucher({ chainId }, by, id, ceiling);
const state = (over: Partial<ChannelState> = {}): ChannelState => ({
  balance: 1_000n,
  totalClaimed: 0n,
  withdrawRequestedAt: 0n,
  refundNonce: 0n,
  ...over,
});

interface World {
  newest?: ChannelState | undefined | Error;
  row?: Partial<SettlementRow>;
  stored?: StoredVoucher;
  signers?: Address[] | Error;
  isTaken?: boolean;
  isFollowed?: boolean;
}

/** Records every call, in its order. */
function wallet(world: World = {}) {
  const calls: unknown[] = [];
  const warnings: string[] = [];
  const record =
    <Result>(name: string, result: Result) =>
    async (...args: unknown[]) => {
      calls.push([name, ...args]);
      if (result instanceof Error) throw result;
      return result;
    };
  const channels = new WalletChannels({
    sign: record("sign", { voucher: hex("6"), deposit: null }) as never,
    signers: record("signers", world.signers ?? [signer.address, stranger.address]) as never,
    watch: record("watch", undefined),
    follow: record("follow", world.isFollowed === false ? new Error("down") : undefined),
    findSettlement: record("findSettlement", world.row) as never,
    states: (of) =>
      of === chainId ? { newest: record("newest", world.newest) as never } : undefined,
    store: {
      signed: record("signed", undefined),
      again: record("again", world.isTaken ?? true) as never,
      corrected: record("corrected", undefined),
      find: record("find", world.stored) as never,
    },
    log: { warn: (_fields, message) => warnings.push(message) },
  });
  return { channels, calls, warnings };
}

t.test("a new channel's terms", async (t) => {
  const { channels } = wallet();
  const { receiverAuthorizer, withdrawDelay } = config;
  const payment = {
    chainId,
    receiver: config.receiver,
    token: config.token,
    offer: {
      receiverAuthorizer,
      withdrawDelay,
      minDepositAtomic: 7n,
      signer: config.payerAuthorizer,
    },
  };
  const [one, other] = [channels.wanted(WALLET, payment, 30), channels.wanted(WALLET, payment, 30)];
  t.match(one, { ...payment.offer, busySeconds: 30 });
  t.equal(one.id, channelIdAt(chainId, { ...config, salt: one.salt }));
  t.match(one.salt, /^0x[0-9a-f]{64}$/);
  t.match(one.depositId, /^pay_/);
  t.not(one.salt, other.salt);
  t.not(one.depositId, other.depositId);
});

t.test(
  "the account that signs vouchers is asked for once, and again when it was not read",
  async (t) => {
    const known = wallet();
    t.equal(await known.channels.signer(), signer.address);
    t.equal(await known.channels.signer(), signer.address);
    t.same(known.calls, [["signers"]]);
    t.equal(await wallet({ signers: [] }).channels.signer(), undefined);
    const broken = wallet({ signers: new Error("down") });
    t.equal(await broken.channels.signer(), undefined);
    t.equal(await broken.channels.signer(), undefined);
    t.same(broken.calls, [["signers"], ["signers"]]);
    t.same(broken.warnings, Array(2).fill("the accounts that sign vouchers were not read"));
  },
);

t.test(
  "a deposit is watched before its voucher is stored, and only with its signature",
  async (t) => {
    const withDeposit = { ...order, deposit: DEPOSIT };
    const cases = [
      { order: withDeposit, deposit: hex("7"), depositId: "pay_2", isWatched: true },
      { order: withDeposit, deposit: null, depositId: "pay_2", isWatched: false },
      { order: withDeposit, deposit: hex("7"), depositId: undefined, isWatched: false },
      { order, deposit: hex("7"), depositId: "pay_2", isWatched: false },
    ];
    for (const { order: of, deposit, depositId, isWatched } of cases) {
      const { channels, calls } = wallet();
      await channels.accept(KEY, { order: of, signed: { voucher: hex("6"), deposit }, depositId });
      const authorization = { ...(depositOf(withDeposit) as Authorization), signature: deposit };
      t.same(calls, [
        ...(isWatched
          ? [["watch", { agentId: KEY.agentId, paymentId: "pay_2", authorization }]]
          : []),
        ["signed", { ...KEY, voucher: hex("6") }],
      ]);
    }
  },
);

t.test("a seller's total", async (t) => {
  const before = { ceiling: 200n, voucher: await voucherFor(200n) };
  const own = async (ceiling: bigint, by = signer) => ({
    ceiling: String(ceiling),
    voucher: await voucherFor(ceiling, by),
  });
  const cases: {
    what: string;
    total: bigint;
    signed?: { ceiling: string; voucher: string };
    order?: ChannelOrder;
    chain?: World["newest"];
    accepted?: { ceiling: bigint; voucher: Hex | null };
    isRead?: boolean;
  }[] = [
    {
      what: "with our voucher for exactly that",
      total: 300n,
      signed: await own(300n),
      accepted: { ceiling: 300n, voucher: await voucherFor(300n) },
    },
    {
      what: "with our voucher for more, which this database lost",
      total: 300n,
      signed: await own(900n),
      accepted: { ceiling: 900n, voucher: await voucherFor(900n) },
    },
    { what: "above our voucher", total: 301n, signed: await own(300n) },
    {
      what: "with the voucher of somebody else",
      total: 300n,
      signed: await own(300n, stranger),
      isRead: true,
    },
    {
      what: "with our voucher for another ceiling",
      total: 300n,
      signed: { ceiling: "300", voucher: await voucherFor(299n) },
      isRead: true,
    },
    { what: "without evidence", total: 300n, isRead: true },
    {
      what: "of the chain",
      total: 300n,
      chain: state({ totalClaimed: 300n }),
      accepted: { ceiling: 0n, voucher: null },
      isRead: true,
    },
    { what: "below the chain's", total: 300n, chain: state({ totalClaimed: 301n }), isRead: true },
    { what: "above the chain's", total: 300n, chain: state({ totalClaimed: 299n }), isRead: true },
    {
      what: "of the chain, beyond all that we know as signed",
      total: 301n,
      chain: state({ totalClaimed: 301n }),
    },
    {
      what: "of the chain, within what was signed before",
      total: 200n,
      order: { ...order, ceiling: 100n, before },
      chain: state({ totalClaimed: 200n }),
      accepted: { ceiling: 0n, voucher: null },
      isRead: true,
    },
    {
      what: "of the chain, beyond what was signed before and now",
      total: 201n,
      order: { ...order, ceiling: 100n, before },
      chain: state({ totalClaimed: 201n }),
    },
    { what: "and the chain does not answer", total: 300n, chain: new Error("down"), isRead: true },
    { what: "nothing", total: 0n, accepted: { ceiling: 0n, voucher: null } },
  ];
  for (const { what, total, signed, order: of = order, chain, accepted, isRead = false } of cases) {
    const { channels, calls, warnings } = wallet({ newest: chain });
    const correction = { total: String(total), ...(signed && { signed }) };
    const isAccepted = await channels.correct(KEY, { order: of, correction, wasShown: true });
    t.equal(isAccepted, accepted !== undefined, what);
    t.same(
      calls,
      [
        ...(isRead ? [["newest", id]] : []),
        ...(accepted ? [["corrected", { ...KEY, total, ...accepted, wasShown: true }]] : []),
      ],
      what,
    );
    t.same(warnings, chain instanceof Error ? ["a channel was not read"] : [], what);
  }
  const { channels } = wallet({ newest: state({ totalClaimed: 300n }) });
  const onOther = {
    order: { ...order, chainId: elsewhere.chainId },
    correction: { total: "300" },
    wasShown: false,
  };
  t.equal(await channels.correct(KEY, onOther), false, "a chain that is not read");
});

const authorization = {
  ...(depositOf({ ...order, deposit: DEPOSIT }) as Authorization),
  signature: hex("7"),
};

t.test("a deposit of an earlier request is shown again while the channel lacks it", async (t) => {
  const cases: { what: string; world: World; isShown: boolean; depositId?: string }[] = [
    {
      what: "queued",
      world: { row: { status: "queued" }, newest: state({ balance: 299n }) },
      isShown: true,
    },
    {
      what: "submitted",
      world: { row: { status: "submitted" }, newest: state({ balance: 0n }) },
      isShown: true,
    },
    {
      what: "the channel has enough",
      world: { row: { status: "queued" }, newest: state({ balance: 300n }) },
      isShown: false,
    },
    {
      what: "the channel was not read",
      world: { row: { status: "queued" }, newest: undefined },
      isShown: false,
    },
    {
      what: "the chain does not answer",
      world: { row: { status: "queued" }, newest: new Error("down") },
      isShown: false,
    },
    {
      what: "made",
      world: { row: { status: "settled" }, newest: state({ balance: 0n }) },
      isShown: false,
    },
    {
      what: "expired",
      world: { row: { status: "expired" }, newest: state({ balance: 0n }) },
      isShown: false,
    },
    { what: "unknown to the engine", world: { newest: state({ balance: 0n }) }, isShown: false },
  ];
  for (const { what, world, isShown } of cases) {
    const row = world.row && ({ ...world.row, authorization } as SettlementRow);
    const { channels } = wallet({ ...world, ...(row && { row }) });
    t.same(
      await channels.unmadeDeposit("pay_2", order),
      isShown ? { deposit: DEPOSIT, signature: hex("7") } : undefined,
      what,
    );
  }
  const { channels, calls } = wallet({ row: { status: "queued" }, newest: state() });
  t.equal(await channels.unmadeDeposit(undefined, order), undefined);
  t.same(calls, [], "nothing is read without a deposit");
});

t.test("what is shown to a seller has a deposit only if one was ordered and signed", async (t) => {
  const shown = (of: ChannelOrder, deposit: Hex | null) =>
    payloadOf(of, { voucher: hex("6"), deposit });
  t.match(shown({ ...order, deposit: DEPOSIT }, hex("7")), {
    type: "deposit",
    deposit: { amount: "1000" },
  });
  t.match(shown({ ...order, deposit: DEPOSIT }, null), { type: "voucher" });
  t.match(shown(order, hex("7")), { type: "voucher" });
  t.same(depositIn(authorization), DEPOSIT);
  t.equal(depositIn({ ...authorization, terms: undefined }), undefined);
  t.equal(
    depositIn({ ...authorization, terms: { scheme: "channel-withdraw" } as never }),
    undefined,
  );
});

t.test("the voucher of an earlier request is found as it was shown", async (t) => {
  t.equal(await wallet().channels.find(KEY), undefined);
  const stored: StoredVoucher = {
    order,
    voucher: hex("6"),
    priceAtomic: 10n,
    chargedBefore: 290n,
    chargedAtomic: null,
    undecided: undefined,
    closing: undefined,
    depositId: "pay_2",
    balanceAtomic: 1_000n,
  };
  const made = wallet({ stored });
  t.same(await made.channels.find(KEY), {
    ...stored,
    id,
    wasShown: true,
    signed: { voucher: hex("6"), deposit: null },
  });
  const row = { status: "submitted", authorization } as SettlementRow;
  const unmade = wallet({ stored, row, newest: state({ balance: 0n }) });
  t.same(await unmade.channels.find(KEY), {
    ...stored,
    id,
    wasShown: true,
    order: { ...order, deposit: DEPOSIT },
    signed: { voucher: hex("6"), deposit: hex("7") },
  });
});

t.test("what is passed on", async (t) => {
  const { channels, calls, warnings } = wallet({ isTaken: false, isFollowed: false });
  await channels.sign("agt_1", order, "https://a.example");
  t.equal(await channels.again(KEY, 30), false);
  channels.followDeposit("pay_2", hex("8"));
  t.same(calls, [
    ["sign", "agt_1", order, "https://a.example"],
    ["again", { ...KEY, seconds: 30 }],
    ["follow", "pay_2", hex("8")],
  ]);
  await new Promise(setImmediate);
  t.same(warnings, ["a deposit was not followed"]);
});

// Closing.

const channel: ClosingChannel = {
  agentId: KEY.agentId,
  id,
  chainId,
  config,
  reason: "owner",
  ceiling: 300n,
  charged: 200n,
  voucher: hex("6", 65),
  url: "https://a.example/api",
  refundTries: 0,
  depositedAtomic: 1_000n,
  openDeposits: 0,
  depositBlock: 70n,
};
const empty = state({ balance: 300n, totalClaimed: 300n });

t.test("the next step of closing a channel", async (t) => {
  const cases: [
    string,
    Partial<ClosingChannel>,
    { newest?: ChannelState; final?: ChannelState; time?: bigint },
    unknown,
  ][] = [
    [
      "a deposit is under way",
      { openDeposits: 1 },
      { newest: empty, final: empty },
      { kind: "wait", forMs: 10_000 },
    ],
    [
      "nothing is left, finally",
      {},
      { newest: empty, final: empty },
      { kind: "closed", claimed: 300n },
    ],
    ["nothing is left, not finally", {}, { newest: empty }, { kind: "wait", forMs: 10_000 }],
    [
      "a claim that is not final changes who gets it",
      {},
      { newest: empty, final: state({ balance: 400n, totalClaimed: 400n }) },
      { kind: "wait", forMs: 10_000 },
    ],
    [
      "the same balance, claimed later",
      {},
      { newest: empty, final: state({ balance: 300n, totalClaimed: 200n }) },
      { kind: "wait", forMs: 10_000 },
    ],
    ["the seller is asked", {}, {}, { kind: "ask" }],
    ["once more", { refundTries: 1 }, {}, { kind: "ask" }],
    ["not a third time", { refundTries: 2 }, {}, { kind: "begin", amount: 1_000n }],
    [
      "not one that broke the rules",
      { reason: "seller_broke_rules" },
      {},
      { kind: "begin", amount: 1_000n },
    ],
    [
      "not one whose URL is not known",
      { url: null },
      { newest: state({ totalClaimed: 1n }) },
      { kind: "begin", amount: 999n },
    ],
    [
      "the delay is over",
      {},
      { newest: state({ withdrawRequestedAt: 100n, totalClaimed: 1n }), time: 1_000n },
      { kind: "finish", amount: 999n },
    ],
    [
      "a second too early",
      {},
      { newest: state({ withdrawRequestedAt: 100n }), time: 999n },
      { kind: "wait", forMs: 1_000 },
    ],
    [
      "much too early: looked at each minute",
      {},
      { newest: state({ withdrawRequestedAt: 100n }), time: 100n },
      { kind: "wait", forMs: 60_000 },
    ],
  ];
  for (const [what, over, { newest = state(), final = state(), time = 0n }, expected] of cases)
    t.same(nextStep({ ...channel, ...over }, { newest, final, timeSeconds: time }), expected, what);
});

interface ClosingWorld {
  channels?: Partial<ClosingChannel>[];
  newest?: ChannelState;
  final?: ChannelState;
  time?: bigint;
  finalBlock?: bigint;
  isRead?: boolean;
  isReturned?: boolean;
  failsFor?: string;
}

async function closingCalls(world: ClosingWorld) {
  const { newest = state(), final = newest, time = 10_000n, isRead = true } = world;
  const shown = { newest, final, timeSeconds: time, finalBlock: world.finalBlock ?? 70n };
  const calls: unknown[] = [];
  const logged: string[] = [];
  const record = (name: string) => async (of: ClosingChannel, what?: unknown) => {
    if (of.agentId === world.failsFor) throw new Error("down");
    calls.push(what === undefined ? [name] : [name, what]);
  };
  await new Closing({
    due: async () => (world.channels ?? [{}]).map((over) => ({ ...channel, ...over })),
    states: async () => (isRead ? shown : undefined),
    askForRefund: async () => {
      calls.push(["ask"]);
      return world.isReturned ?? false;
    },
    accept: record("accept"),
    store: {
      lookAgain: record("again"),
      returned: record("returned"),
      returnsAt: record("returnsAt"),
      closed: record("closed"),
    },
    log: { info: (_, message) => logged.push(message), warn: (_, message) => logged.push(message) },
  }).run();
  return { calls, logged };
}
const later = ["again", { afterMs: 60_000, hasAsked: false }];
const soon = ["again", { afterMs: 10_000, hasAsked: false }];

t.test("each look at a channel does one step, and is taken by one process", async (t) => {
  const cases: { what: string; world: ClosingWorld; calls: unknown[]; logged?: string[] }[] = [
    { what: "the chain does not answer", world: { isRead: false }, calls: [later] },
    {
      what: "the seller does not return it",
      world: {},
      calls: [later, ["ask"], ["again", { afterMs: 0, hasAsked: true }]],
    },
    {
      what: "the seller says that it returned it",
      world: { isReturned: true },
      calls: [later, ["ask"], ["again", { afterMs: 10_000, hasAsked: true }]],
    },
    {
      what: "it is empty",
      world: { newest: empty },
      calls: [later, ["returned", 700n], ["closed", { claimed: 300n, returned: 700n }]],
      logged: ["a channel is closed"],
    },
    {
      what: "it is empty, and nothing came back",
      world: { newest: empty, channels: [{ depositedAtomic: 300n }] },
      calls: [later, ["closed", { claimed: 300n, returned: 0n }]],
      logged: ["a channel is closed"],
    },
    {
      what: "what came back is not known while a deposit is under way",
      world: { newest: empty, channels: [{ openDeposits: 1 }] },
      calls: [later, soon],
    },
    {
      what: "a final deposit that the endpoint does not show yet did not come back",
      world: { newest: state({ balance: 0n }), finalBlock: 69n },
      calls: [later, soon],
    },
    {
      what: "what came back finally is recorded, not what came back just now",
      world: { newest: empty, final: state({ balance: 900n }) },
      calls: [later, ["returned", 100n], soon],
    },
    {
      what: "a withdrawal has begun",
      world: { newest: state({ withdrawRequestedAt: 9_200n }) },
      calls: [
        later,
        ["returnsAt", new Date(10_100_000)],
        ["again", { afterMs: 60_000, hasAsked: false }],
      ],
    },
  ];
  for (const { what, world, calls: expected, logged = [] } of cases) {
    const { calls, logged: messages } = await closingCalls(world);
    t.same(calls, expected, what);
    t.same(messages, logged, what);
  }
  const two = await closingCalls({
    channels: [{ agentId: "agt_broken" }, {}],
    isRead: false,
    failsFor: "agt_broken",
  });
  t.same(two.calls, [later], "one that fails does not hold up the others");
  t.same(two.logged, ["a channel was not closed yet"]);
});

t.test(
  "a step of the withdrawal is the same order in its hour, whichever process gives it",
  async (t) => {
    const ordered = async (world: ClosingWorld): Promise<SignedAuthorization> => {
      const { calls } = await closingCalls({ channels: [{ refundTries: 2 }], ...world });
      t.same(calls.at(-1), soon);
      return (calls.at(-2) as [string, SignedAuthorization])[1];
    };
    const begin = await ordered({ time: 7_200n });
    t.match(begin, {
      chainId,
      asset: config.token,
      from: config.payer,
      value: 1_000n,
      validAfter: 0n,
      validBefore: 14_400n,
      signature: "0x",
      terms: {
        scheme: "channel-withdraw",
        step: "begin",
        channelId: id,
        config,
        facilitator: config.payerAuthorizer,
      },
    });
    t.match(begin.nonce, /^channel:0x[0-9a-f]{64}$/);
    t.match(begin.to, /^0x[0-9a-f]{40}$/);
    t.equal((await ordered({ time: 10_799n })).nonce, begin.nonce);
    t.not((await ordered({ time: 10_800n })).nonce, begin.nonce, "an hour later");
    const claimed = await ordered({ time: 7_200n, newest: state({ totalClaimed: 400n }) });
    t.not(
      claimed.nonce,
      begin.nonce,
      "the receiver has claimed: the former amount cannot be withdrawn",
    );
    const finishing = { withdrawRequestedAt: 1n };
    const finish = await ordered({ time: 7_200n, newest: state(finishing) });
    t.match(finish.terms, { step: "finish" });
    t.not(finish.nonce, begin.nonce);
    const less = await ordered({
      time: 7_200n,
      newest: state({ ...finishing, totalClaimed: 400n }),
    });
    t.equal(less.nonce, finish.nonce, "the contract pays what is left");
  },
);

// The seller's refund.

const ACCEPTED = {
  scheme: "batch-settlement",
  network: network.id,
  payTo: config.receiver.toUpperCase().replace("0X", "0x"),
  asset: network.usdc.address,
  amount: "10",
  maxTimeoutSeconds: 60,
  extra: {
    name: network.usdc.name,
    version: network.usdc.version,
    receiverAuthorizer: config.receiverAuthorizer,
    withdrawDelay: 900,
  },
};
const required = (accepts: unknown = [ACCEPTED], more: object = {}): string =>
  encodePaymentRequiredHeader({ x402Version: 2, accepts, ...more } as never);
const answer = (
  status: number,
  headers: Record<string, string | string[]> = {},
): OutboundResponse => ({ status, headers, body: Buffer.alloc(0) });
const asked = (header: string | string[] = required()) =>
  answer(402, { "payment-required": header });
const returned = (response: unknown = { success: true }, status = 200) =>
  answer(status, { "payment-response": encodePaymentResponseHeader(response as never) });

t.test("a seller is asked for a refund by its own terms", async (t) => {
  const voucher = hex("6", 65);
  const ask = async (...answers: OutboundResponse[]) => {
    const requests: OutboundRequest[] = [];
    const send = async (request: OutboundRequest) => {
      requests.push(request);
      return answers[requests.length - 1] as OutboundResponse;
    };
    const isReturned = await askForRefund(send, "https://a.example/api", {
      order,
      voucher,
      network,
    });
    return { isReturned, requests };
  };
  const resource = { url: "https://a.example/api" };
  const other = { ...ACCEPTED, scheme: "exact" };
  const { isReturned, requests } = await ask(
    asked(required([other, 7, ACCEPTED], { resource })),
    returned(),
  );
  t.equal(isReturned, true);
  t.match(requests, [
    {
      url: "https://a.example/api",
      method: "GET",
      headers: {},
      timeoutMs: 30_000,
      maxBytes: 65_536,
    },
    { url: "https://a.example/api", method: "GET" },
  ]);
  const proof = decodePaymentSignatureHeader(String(requests[1]?.headers?.["payment-signature"]));
  t.match(proof, {
    x402Version: 2,
    accepted: ACCEPTED,
    resource,
    payload: {
      type: "refund",
      voucher: { channelId: id, maxClaimableAmount: "300", signature: voucher },
    },
  });
  t.notOk(
    "resource" in
      decodePaymentSignatureHeader(
        String((await ask(asked(), returned())).requests[1]?.headers?.["payment-signature"]),
      ),
  );

  const noTerms: [string, OutboundResponse][] = [
    ["it asks for no payment", answer(200)],
    ["another status with terms", answer(200, { "payment-required": required() })],
    ["no header", answer(402)],
    ["two headers", asked([required(), required()])],
    ["an unreadable header", asked("%%%")],
    ["no list", asked(required("none"))],
    ["an empty list", asked(required([]))],
    ...Object.entries({
      scheme: "exact",
      network: elsewhere.id,
      payTo: address("9"),
      extra: "none",
    }).map(([name, value]): [string, OutboundResponse] => [
      name,
      asked(required([{ ...ACCEPTED, [name]: value }])),
    ]),
    ["no payee", asked(required([{ ...ACCEPTED, payTo: 7 }]))],
    ...Object.entries({ receiverAuthorizer: address("9"), withdrawDelay: 901, name: "x" }).map(
      ([name, value]): [string, OutboundResponse] => [
        name,
        asked(required([{ ...ACCEPTED, extra: { ...ACCEPTED.extra, [name]: value } }])),
      ],
    ),
    ["not even an object", asked(Buffer.from("7").toString("base64"))],
    ["null", asked(Buffer.from("null").toString("base64"))],
    ["a list of null", asked(required([null]))],
  ];
  for (const [what, first] of noTerms) {
    const { isReturned: is, requests: made } = await ask(first, returned());
    t.equal(is, false, what);
    t.equal(made.length, 1, `${what}: nothing more is sent`);
  }
  const refused: [string, OutboundResponse][] = [
    ["a refusal", returned({ success: true }, 402)],
    ["the first error", returned({ success: true }, 400)],
    ["no report", answer(200)],
    ["two reports", answer(200, { "payment-response": ["a", "b"] })],
    ["an unreadable report", answer(200, { "payment-response": "%%%" })],
    ["a failure", returned({ success: false })],
    ["almost a success", returned({ success: "true" })],
    ["no object", answer(200, { "payment-response": Buffer.from("7").toString("base64") })],
    ["null", answer(200, { "payment-response": Buffer.from("null").toString("base64") })],
  ];
  for (const [what, second] of refused)
    t.equal((await ask(asked(), second)).isReturned, false, what);
  t.equal(
    (await ask(asked(), returned({ success: true }, 399))).isReturned,
    true,
    "any other status",
  );
});

// Goal: a claim, settle or refund of channels is sent once and answered from what the chain shows; we sign only with our
// own key, for the merchant whose channel it is, and never a refund of more than is left after the claims.
import { randomBytes } from "node:crypto";
import t from "tap";
import {
  keccak256,
  recoverAddress,
  toBytes,
  toFunctionSelector,
  toHex,
  zeroAddress,
  type Address,
  type Hex,
} from "viem";
import type { CallResult, ContractCall } from "../../server/core/abi.ts";
import type { ChannelClaim, ChannelConfig } from "../../server/core/authorization.ts";
import { newId } from "../../server/core/ids.ts";
import { addressOf, sign } from "../../server/core/signatures.ts";
import { ChannelOrders, type OrderDeps } from "../../server/plugins/channels/orders.ts";
import type { ChannelStates } from "../../server/plugins/channels/states.ts";
import type { SettlementOutcome, SettlementRow } from "../../server/plugins/settlement/types.ts";
import {
  channelIdOf,
  CHANNELS,
  claimCall,
  claimDigest,
  refundCall,
  refundDigest,
  settleCall,
  type ChannelState,
  type Claim,
  type Refund,
  type SettleOrder,
} from "../../server/schemes/batch-settlement/index.ts";
import { ARC, AUTHORIZATION, recordOf } from "./payment-samples.ts";

const random = (bytes: number): Hex => toHex(randomBytes(bytes));
const OWN = "invalid_batch_settlement_evm_";
const KEY = randomBytes(32);
const AUTHORIZER = addressOf(KEY);
const RECEIVER: Address = `0x${"22".repeat(20)}`;
const USDC = ARC.usdc.address.toLowerCase() as Address;
const SIGNATURE: Hex = `0x${"ab".repeat(65)}`;
const common = { network: ARC, networkName: ARC.id };

const configOf = (over: Partial<ChannelConfig> = {}): ChannelConfig => ({
  payer: random(20),
  payerAuthorizer: random(20),
  receiver: RECEIVER,
  receiverAuthorizer: AUTHORIZER,
  token: USDC,
  withdrawDelay: 900,
  salt: random(32),
  ...over,
});
const idOf = (config: ChannelConfig): Hex => channelIdOf(ARC.chainId, config);
const rowOf = (config: ChannelConfig, total = 700, ceiling = 1_000): ChannelClaim => ({
  channel: config,
  ceiling: `${ceiling}`,
  total: `${total}`,
  signature: SIGNATURE,
});
const claimOf = (
  claims: readonly [ChannelClaim, ...ChannelClaim[]],
  signature: Hex | undefined = SIGNATURE,
): Claim => ({ type: "claim", ...common, claims, signature });
const unsigned = (claims: readonly [ChannelClaim, ...ChannelClaim[]]): Claim => ({
  ...claimOf(claims),
  signature: undefined,
});
const SETTLE: SettleOrder = { type: "settle", ...common, receiver: RECEIVER, token: USDC };
const refundOf = (config: ChannelConfig, over: Partial<Refund> = {}): Refund => ({
  type: "completed refund",
  ...common,
  channel: { id: idOf(config), config, payer: config.payer },
  amount: 5_000n,
  nonce: 3n,
  claims: [],
  claimSignature: undefined,
  signature: SIGNATURE,
  ...over,
});

const stateOf = (over: Partial<ChannelState> = {}): ChannelState => ({
  balance: 10_000n,
  totalClaimed: 0n,
  withdrawRequestedAt: 0n,
  refundNonce: 3n,
  ...over,
});

type Accepted = Parameters<OrderDeps["accept"]>[0];
type Outcome = SettlementOutcome;
const settled = (id: string, over: object = {}): Outcome => ({
  status: "settled",
  id,
  txHash: keccak256(toBytes(id)),
  blockNumber: 9n,
  settledAt: new Date(0),
  byOther: false,
  amountAtomic: 777n,
  ...over,
});

interface Scene {
  states?: Map<Hex, ChannelState>;
  sums?: ({ claimed: bigint; settled: bigint } | undefined)[];
  /** What the contract would answer. */
  simulated?: CallResult;
  /** What becomes of the n-th request that is accepted, and what else happens then. */
  ends?: (accepted: Accepted, count: number) => Outcome;
  /** Rows that are there before, by nonce. */
  rows?: Map<string, SettlementRow>;
  over?: Partial<OrderDeps>;
}

function scene(given: Scene = {}) {
  const log: string[] = [];
  const accepted: Accepted[] = [];
  const simulated: ContractCall[] = [];
  const outcomes = new Map<string, Outcome>();
  const rows = given.rows ?? new Map<string, SettlementRow>();
  const states = given.states ?? new Map<Hex, ChannelState>();
  const sums = [...(given.sums ?? [])];
  const reads = {
    all: async (ids: readonly Hex[]) => {
      log.push(`read ${ids.length}`);
      return ids.map((id) => states.get(id));
    },
    at: async (id: Hex, block: bigint) => {
      log.push(`read at ${block}`);
      return states.get(id);
    },
    receiver: async (_receiver: Address, _token: Address, block: bigint | "latest") => {
      log.push(`sums at ${block}`);
      return sums.length > 1 ? sums.shift() : sums[0];
    },
    simulate: async (call: ContractCall) => {
      simulated.push(call);
      return given.simulated ?? { success: true, data: "0x" };
    },
  };
  const signed: Hex[] = [];
  const deps: OrderDeps = {
    settlement: {
      assertAvailable: async (chainId) => void log.push(`available ${chainId}`),
      wait: async (id, timeoutMs) => {
        log.push(`wait ${timeoutMs}`);
        return outcomes.get(id) ?? { status: "pending", id };
      },
    },
    accept: async (request) => {
      const { nonce } = request.authorization;
      const known = rows.get(nonce);
      if (known) return known;
      accepted.push(request);
      outcomes.set(request.id, given.ends?.(request, accepted.length) ?? settled(request.id));
      const row = recordOf(request.authorization, { id: request.id });
      rows.set(nonce, row);
      return row;
    },
    find: async ({ nonce }) => rows.get(nonce),
    ordersOf: async () => ({ open: [], newest: null }),
    deposits: async () => new Map(),
    states: () => reads as unknown as ChannelStates,
    authorizer: {
      address: AUTHORIZER,
      sign(digest) {
        const signature = sign(digest, KEY);
        signed.push(signature);
        return signature;
      },
    },
    isMerchants: async (merchant, receiver) => {
      log.push(`merchant ${merchant}`);
      return merchant === "own_1" && receiver === RECEIVER;
    },
    feeFor: (account, amount) => ({ account, amount: String(amount / 10n) }),
    countFor: (_limit, payer) => void log.push(`count ${payer}`),
    leastAtomic: 0n,
    waitMs: 5_000,
    pause: async (ms) => void log.push(`pause ${ms}`),
    ...given.over,
  };
  const run = (
    order: Claim | SettleOrder | Refund,
    options: Parameters<ChannelOrders["run"]>[1] = {},
  ) => new ChannelOrders(deps).run(order, options);
  return { run, log, accepted, simulated, signed, states };
}
const nonceOf = (name: string, attempt = 0) =>
  `channel:${keccak256(toBytes(`${name}:${attempt}`))}` as const;
const refusedAs = (reason: string) => ({
  success: false,
  errorReason: reason.startsWith("!") ? reason.slice(1) : `${OWN}${reason}`,
  transaction: "",
  network: ARC.id,
});
const reverted = (error: string): CallResult => ({
  success: false,
  data: toFunctionSelector(`${error}()`),
});

const [A, B, C] = [configOf(), configOf(), configOf()];
const statesWith = (...claimed: [ChannelConfig, bigint][]) =>
  new Map<Hex, ChannelState>([
    ...[A, B, C].map((config) => [idOf(config), stateOf()] as const),
    ...claimed.map(([config, totalClaimed]) => [idOf(config), stateOf({ totalClaimed })] as const),
  ]);

t.test("a claim is sent as it was signed", async (t) => {
  const { run, accepted, simulated, log } = scene({ states: statesWith([A, 100n]) });
  const claims = [rowOf(A)] as const;
  const answer = await run(claimOf(claims), { merchant: "own_1" });
  const [request] = accepted;
  t.equal(accepted.length, 1);
  t.match(request, {
    merchant: "own_1",
    authorization: {
      chainId: ARC.chainId,
      asset: USDC,
      from: RECEIVER,
      to: CHANNELS.toLowerCase(),
      value: 0n,
      signature: SIGNATURE,
      validAfter: 0n,
      nonce: nonceOf(`claim:${idOf(A)}:700`),
      terms: { scheme: "channel-claim", claims, lead: { channelId: idOf(A), total: "700" } },
    },
  });
  t.ok((request?.authorization.validBefore ?? 0n) >= 2n ** 64n, "it has no end of its own");
  t.same(simulated, [claimCall(claims, SIGNATURE)]);
  const txHash = keccak256(toBytes(request?.id ?? ""));
  t.same(answer, {
    success: true,
    txHash,
    transaction: txHash,
    network: ARC.id,
    paymentId: request?.id,
  });
  t.same(log, ["read 1", `count ${RECEIVER}`, `available ${ARC.chainId}`, "wait 5000"]);
});

t.test("what is claimed already is a success that sends nothing", async (t) => {
  for (const claimed of [700n, 701n]) {
    const { run, accepted, simulated } = scene({ states: statesWith([A, claimed]) });
    t.same(await run(claimOf([rowOf(A)])), {
      success: true,
      txHash: "",
      transaction: "",
      network: ARC.id,
    });
    t.equal(accepted.length + simulated.length, 0);
  }
  const { run, accepted } = scene({ states: statesWith([A, 699n]) });
  t.match(await run(claimOf([rowOf(A)])), { success: true, transaction: /^0x/ });
  t.equal(accepted.length, 1, "one unit is missing");
});

t.test("the row that adds most leads, since all happen or none", async (t) => {
  const cases: [readonly [ChannelClaim, ...ChannelClaim[]], Map<Hex, ChannelState>, Hex][] = [
    [[rowOf(A, 700), rowOf(B, 701)], statesWith(), idOf(B)],
    [[rowOf(A, 700), rowOf(B, 701)], statesWith([B, 2n]), idOf(A)],
    [[rowOf(A, 700), rowOf(B, 700)], statesWith(), idOf(A)],
    [[rowOf(A, 1), rowOf(B, 700), rowOf(C, 2)], statesWith([B, 700n]), idOf(C)],
  ];
  for (const [claims, states, channelId] of cases) {
    const { run, accepted } = scene({ states });
    await run(claimOf(claims));
    const terms = accepted[0]?.authorization.terms;
    t.equal(terms?.scheme === "channel-claim" && terms.lead.channelId, channelId);
  }
});

t.test("somebody else sent a part: the rest is sent again, until all is claimed", async (t) => {
  const states = statesWith();
  const { run, accepted, log } = scene({
    states,
    ends({ id }, count) {
      if (count > 1) return settled(id);
      states.set(idOf(A), stateOf({ totalClaimed: 900n }));
      return settled(id, { byOther: true });
    },
  });
  const answer = await run(claimOf([rowOf(A, 900), rowOf(B)]));
  t.same(
    accepted.map(({ authorization }) => authorization.nonce),
    [nonceOf(`claim:${idOf(A)}:900`), nonceOf(`claim:${idOf(B)}:700`)],
  );
  t.match(answer, { success: true, paymentId: accepted[1]?.id });
  t.ok(log.includes("pause 300"));
});

t.test("somebody else sent all of it", async (t) => {
  const states = statesWith();
  const { run, accepted } = scene({
    states,
    ends({ id }) {
      states.set(idOf(A), stateOf({ totalClaimed: 800n }));
      return settled(id, { byOther: true });
    },
  });
  t.match(await run(claimOf([rowOf(A)])), { success: true, paymentId: accepted[0]?.id });
  t.equal(accepted.length, 1);
});

t.test("another request's claim of the same lead does not stand for the whole", async (t) => {
  const states = statesWith([A, 0n]);
  const rows = new Map([
    [
      nonceOf(`claim:${idOf(A)}:900`) as string,
      recordOf(AUTHORIZATION, {
        id: "pay_first",
        status: "settled",
        txHash: SIGNATURE,
        settledAt: new Date(0),
      }) as SettlementRow,
    ],
  ]);
  const { run, accepted } = scene({
    states,
    rows,
    over: {
      pause: async () => void states.set(idOf(A), stateOf({ totalClaimed: 900n })),
    },
  });
  const answer = await run(claimOf([rowOf(A, 900), rowOf(B)]));
  t.equal(accepted.length, 1);
  t.equal(accepted[0]?.authorization.nonce, nonceOf(`claim:${idOf(B)}:700`));
  t.match(answer, { success: true, paymentId: accepted[0]?.id });
});

t.test("a chain that never shows the claim leaves it pending, after a few rounds", async (t) => {
  const { run, accepted, log } = scene({
    states: statesWith(),
    ends: ({ id }) => settled(id, { byOther: true }),
  });
  t.match(await run(claimOf([rowOf(A)])), refusedAs("!settlement_pending"));
  t.equal(log.filter((line) => line === "read 1").length, 5);
  t.equal(accepted.length, 1, "one and the same");
});

t.test("a claim that failed before is requested again; one under way is waited for", async (t) => {
  const name = `claim:${idOf(A)}:700`;
  const old = (status: "failed" | "expired" | "submitted", id: string) =>
    recordOf(AUTHORIZATION, { id, status, errorReason: "why", errorMessage: "because" });
  const rows = () =>
    new Map<string, SettlementRow>([
      [nonceOf(name, 0), old("failed", "pay_a")],
      [nonceOf(name, 1), old("expired", "pay_b")],
    ]);
  const again = scene({ states: statesWith(), rows: rows() });
  t.match(await again.run(claimOf([rowOf(A)])), { success: true });
  t.equal(again.accepted[0]?.authorization.nonce, nonceOf(name, 2));

  const open = scene({
    states: statesWith(),
    rows: rows().set(nonceOf(name, 2), old("submitted", "pay_c")),
  });
  t.match(await open.run(claimOf([rowOf(A)])), {
    ...refusedAs("!settlement_pending"),
    paymentId: "pay_c",
  });
  t.equal(open.accepted.length, 0);
  t.ok(open.log.includes("wait 5000"));
});

t.test("pending and failed orders are answered as such", async (t) => {
  const states = statesWith([A, 0n]);
  for (const order of [claimOf([rowOf(A)]), SETTLE, refundOf(A)]) {
    const sums = [{ claimed: 700n, settled: 0n }];
    const pending = scene({
      states,
      sums,
      ends: ({ id }) => ({ status: "pending", id, txHash: SIGNATURE }),
    });
    t.match(await pending.run(order), {
      success: false,
      errorReason: "settlement_pending",
      transaction: SIGNATURE,
      paymentId: pending.accepted[0]?.id,
    });
    const failed = scene({
      states,
      sums,
      ends: ({ id }) => ({ status: "failed", id, reason: "why", message: "because" }),
    });
    t.match(await failed.run(order), {
      ...refusedAs("!why"),
      errorMessage: "because",
      paymentId: failed.accepted[0]?.id,
    });
  }
});

t.test("only the network's USDC", async (t) => {
  const other = configOf({ token: random(20) });
  const given = () =>
    scene({ states: statesWith([other, 0n]), sums: [{ claimed: 9n, settled: 0n }] });
  for (const order of [
    claimOf([rowOf(other)]),
    claimOf([rowOf(A), rowOf(other)]),
    { ...SETTLE, token: other.token },
    refundOf(other),
  ]) {
    const { run, log, accepted } = given();
    t.match(await run(order), refusedAs("token_mismatch"));
    t.same([log, accepted], [[], []], "nothing was read or sent");
  }
});

t.test("a chain that does not answer", async (t) => {
  const states = statesWith();
  states.delete(idOf(B));
  for (const order of [claimOf([rowOf(B)]), claimOf([rowOf(A), rowOf(B)]), SETTLE, refundOf(B)]) {
    const { run, accepted, signed } = scene({ states, sums: [undefined] });
    t.match(await run(order, { merchant: "own_1" }), refusedAs("rpc_read_failed"));
    t.same([accepted, signed], [[], []]);
  }
});

t.test(
  "what the contract would refuse is not sent; a claim names the channels at fault",
  async (t) => {
    const states = statesWith([B, 0n]);
    const claims = [rowOf(A), rowOf(B, 1_001, 1_000), rowOf(C, 10_001, 20_000)] as const;
    const claim = scene({ states, simulated: reverted("ClaimExceedsCeiling") });
    const answer = await claim.run(claimOf(claims));
    t.match(answer, refusedAs("claim_simulation_failed"));
    const message = String(answer.errorMessage);
    t.match(message, /ClaimExceedsCeiling/);
    t.ok(message.includes(idOf(B)) && message.includes(idOf(C)));
    t.notOk(message.includes(idOf(A)));
    t.equal(claim.accepted.length, 0);
    const honest = scene({ states, simulated: reverted("InvalidSignature") });
    const unnamed = await honest.run(claimOf([rowOf(A, 1_000, 1_000), rowOf(B, 10_000, 10_000)]));
    t.match(unnamed.errorMessage, /InvalidSignature\.$/, "at the bounds nobody is at fault");
    for (const [simulated, text] of [
      [{ success: false, data: "0x" }, "It gives no reason."],
      [reverted("InvalidRefundNonce"), "InvalidRefundNonce"],
    ] as const) {
      const sums = [{ claimed: 700n, settled: 0n }];
      const settle = scene({ simulated, sums });
      t.match(await settle.run(SETTLE), {
        ...refusedAs("settle_simulation_failed"),
        errorMessage: text,
      });
      t.equal(settle.accepted.length, 0);
      const refund = scene({ states, simulated });
      t.match(await refund.run(refundOf(A)), {
        ...refusedAs("refund_simulation_failed"),
        errorMessage: text,
        payer: A.payer,
      });
      t.equal(refund.accepted.length, 0);
    }
  },
);

t.test("what is not worth its gas is not sent", async (t) => {
  const over = { leastAtomic: 100n };
  const cases: [string, Claim | SettleOrder | Refund, Scene, boolean][] = [
    ["claim", claimOf([rowOf(A, 99)]), { states: statesWith() }, false],
    ["claim", claimOf([rowOf(A, 100)]), { states: statesWith() }, true],
    ["added", claimOf([rowOf(A, 700)]), { states: statesWith([A, 601n]) }, false],
    ["mean", claimOf([rowOf(A, 150), rowOf(B, 49)]), { states: statesWith() }, false],
    ["mean", claimOf([rowOf(A, 150), rowOf(B, 50)]), { states: statesWith() }, true],
    ["old", claimOf([rowOf(A, 100), rowOf(B, 50)]), { states: statesWith([B, 50n]) }, true],
    ["settle", SETTLE, { sums: [{ claimed: 199n, settled: 100n }] }, false],
    ["settle", SETTLE, { sums: [{ claimed: 200n, settled: 100n }] }, true],
    ["refund", refundOf(A, { amount: 99n }), { states: statesWith() }, false],
    ["refund", refundOf(A, { amount: 100n }), { states: statesWith() }, true],
    ["rest", refundOf(A), { states: statesWith([A, 9_901n]) }, false],
    ["rest", refundOf(A), { states: statesWith([A, 9_900n]) }, true],
  ];
  for (const [name, order, given, isSent] of cases) {
    const { run, accepted } = scene({ ...given, over });
    const answer = await run(order);
    if (isSent) t.match(answer, { success: true }, name);
    else t.match(answer, refusedAs("!amount_below_floor"), name);
    t.equal(accepted.length, isSent ? 1 : 0, name);
  }
});

t.test("we sign claims only for the merchant whose channels they are", async (t) => {
  const foreign = configOf({ receiver: random(20) });
  const otherKey = configOf({ receiverAuthorizer: random(20) });
  const noKey = configOf({ receiverAuthorizer: zeroAddress });
  const states = statesWith([foreign, 0n], [otherKey, 0n], [noKey, 0n]);
  const merchant = { merchant: "own_1" };
  const cases: [string, Claim, Parameters<ChannelOrders["run"]>[1], string, Partial<OrderDeps>][] =
    [
      [
        "no key of ours",
        unsigned([rowOf(A)]),
        merchant,
        "authorizer_not_configured",
        { authorizer: undefined },
      ],
      [
        "no merchant",
        unsigned([rowOf(A)]),
        {},
        "authorizer_not_configured",
        { isMerchants: async () => true },
      ],
      [
        "another merchant",
        unsigned([rowOf(A)]),
        { merchant: "own_2" },
        "authorizer_not_configured",
        {},
      ],
      [
        "a row of another",
        unsigned([rowOf(A), rowOf(foreign)]),
        merchant,
        "authorizer_not_configured",
        {},
      ],
      [
        "another authorizer",
        unsigned([rowOf(otherKey)]),
        merchant,
        "authorizer_address_mismatch",
        {},
      ],
      [
        "a row of another authorizer",
        unsigned([rowOf(A), rowOf(otherKey)]),
        merchant,
        "authorizer_address_mismatch",
        {},
      ],
      [
        "a row of none",
        unsigned([rowOf(A), rowOf(noKey)]),
        merchant,
        "authorizer_address_mismatch",
        {},
      ],
    ];
  for (const [name, order, options, reason, over] of cases) {
    const { run, accepted, signed, simulated } = scene({ states, over });
    t.match(await run(order, options), refusedAs(reason), name);
    t.same([accepted, signed, simulated], [[], [], []], name);
  }
  const claims = [rowOf(A), rowOf(B)] as const;
  const { run, accepted, signed, log } = scene({ states });
  t.match(await run(unsigned(claims), merchant), { success: true });
  t.equal(log.filter((line) => line.startsWith("merchant")).length, 1, "one receiver");
  const signature = accepted[0]?.authorization.signature ?? "0x";
  t.same(signed, [signature]);
  const hash = claimDigest(ARC.chainId, claims);
  t.equal((await recoverAddress({ hash, signature })).toLowerCase(), AUTHORIZER);
});

t.test("a signed claim needs no merchant", async (t) => {
  const foreign = configOf({ receiver: random(20), receiverAuthorizer: random(20) });
  const { run, signed, accepted, log } = scene({
    states: statesWith([foreign, 0n]),
    over: { authorizer: undefined },
  });
  t.match(await run(claimOf([rowOf(foreign)])), { success: true });
  t.equal(accepted[0]?.authorization.signature, SIGNATURE);
  t.equal(accepted[0]?.authorization.from, foreign.receiver);
  t.same([signed, log.filter((line) => line.startsWith("merchant"))], [[], []]);
});

t.test("a settle", async (t) => {
  const { run, accepted, simulated, log } = scene({
    sums: [{ claimed: 2_100n, settled: 1_400n }],
    over: { ordersOf: async () => ({ open: ["pay_x", "pay_y"], newest: 5n }) },
  });
  t.match(await run(SETTLE), { success: true, amount: "777", network: ARC.id });
  t.match(accepted[0]?.authorization, {
    from: RECEIVER,
    asset: USDC,
    value: 700n,
    signature: "0x",
    nonce: nonceOf("settle:2100"),
    terms: { scheme: "channel-settle", claimed: "2100" },
  });
  t.equal(accepted[0]?.fee, undefined);
  t.same(simulated, [settleCall(RECEIVER, USDC)]);
  t.same(log.slice(0, 3), ["wait 5000", "wait 5000", "sums at latest"], "after the open claims");
  const billed = scene({ sums: [{ claimed: 2_100n, settled: 1_400n }] });
  await billed.run(SETTLE, { isBilled: true });
  t.same(billed.accepted[0]?.fee, { account: RECEIVER, amount: "70" }, "the receiver owes a fee");
});

t.test("a settle of nothing", async (t) => {
  for (const sums of [
    { claimed: 0n, settled: 0n },
    { claimed: 700n, settled: 700n },
    { claimed: 700n, settled: 701n },
  ]) {
    const { run, accepted, log } = scene({ sums: [sums] });
    t.match(await run(SETTLE), refusedAs("nothing_to_settle"));
    t.equal(accepted.length, 0);
    t.same(log, ["sums at latest"]);
  }
});

t.test("a settle while a node is behind the newest order of its receiver", async (t) => {
  const both = (latest: [bigint, bigint], newest: [bigint, bigint] | undefined) =>
    scene({
      sums: [latest, newest].map((pair) => pair && { claimed: pair[0], settled: pair[1] }),
      over: { ordersOf: async () => ({ open: [], newest: 12n }) },
    });
  for (const [what, latest, newest, claimed, value] of [
    ["behind a claim", [700n, 700n], [1_400n, 700n], 1_400n, 700n],
    ["behind a settle and a claim", [700n, 0n], [1_400n, 700n], 1_400n, 700n],
    ["not behind", [1_500n, 700n], [1_400n, 700n], 1_500n, 800n],
    ["no node has that block", [700n, 0n], undefined, 700n, 700n],
  ] as const) {
    const { run, accepted, log } = both([...latest], newest && [...newest]);
    t.match(await run(SETTLE), { success: true }, what);
    t.same(log.slice(0, 2), ["sums at latest", "sums at 12"]);
    t.equal(accepted[0]?.authorization.value, value, what);
    t.equal(accepted[0]?.authorization.nonce, nonceOf(`settle:${claimed}`), what);
  }
  for (const [what, latest, newest, reason] of [
    ["behind a settle", [700n, 0n], [700n, 700n], "nothing_to_settle"],
    ["no node has that block", [700n, 700n], undefined, "rpc_read_failed"],
  ] as const) {
    const { run, accepted } = both([...latest], newest && [...newest]);
    t.match(await run(SETTLE), refusedAs(reason), what);
    t.equal(accepted.length, 0, what);
  }
});

t.test(
  "an endpoint without the claim's block stops no settle, and none is sent twice",
  async (t) => {
    const over = { ordersOf: async () => ({ open: [], newest: 12n }) };
    const enough = scene({ sums: [{ claimed: 700n, settled: 0n }, undefined], over });
    t.match(await enough.run(SETTLE), { success: true }, "what it shows is enough");

    const mute = scene({ sums: [undefined, { claimed: 700n, settled: 0n }], over });
    t.match(await mute.run(SETTLE), refusedAs("rpc_read_failed"));

    // At the claim's block nothing was settled yet; by now it is.
    const done = scene({
      sums: [
        { claimed: 700n, settled: 700n },
        { claimed: 700n, settled: 0n },
      ],
      over,
    });
    t.match(await done.run(SETTLE), refusedAs("nothing_to_settle"));
    t.same(done.log, ["sums at latest", "sums at 12"]);
    t.same(done.accepted, []);
  },
);

t.test("a refund is sent as it was signed, also of more than is left", async (t) => {
  const claims = [rowOf(A, 3_000, 3_000)];
  const { run, accepted, simulated, signed } = scene({ states: statesWith([A, 2_100n]) });
  const order = refundOf(A, { amount: 9_000n, claims, claimSignature: SIGNATURE });
  const answer = await run(order);
  t.match(accepted[0]?.authorization, {
    from: A.payer,
    asset: USDC,
    value: 9_000n,
    signature: SIGNATURE,
    nonce: nonceOf(`refund:${idOf(A)}:3`),
    terms: {
      scheme: "channel-refund",
      channelId: idOf(A),
      config: A,
      refundNonce: "3",
      claims,
      claimSignature: SIGNATURE,
    },
  });
  t.same(simulated, [
    refundCall({
      config: A,
      amount: 9_000n,
      nonce: 3n,
      signature: SIGNATURE,
      claims,
      claimSignature: SIGNATURE,
    }),
  ]);
  t.same(signed, []);
  t.match(answer, {
    success: true,
    payer: A.payer,
    amount: "777",
    extra: {
      channelState: {
        channelId: idOf(A),
        balance: "10000",
        totalClaimed: "2100",
        withdrawRequestedAt: 0,
        refundNonce: "3",
      },
    },
  });
});

t.test("a refund that we sign is cut to what is left after the claims", async (t) => {
  const other = rowOf(B, 9_000, 9_000);
  const cases: [ChannelClaim[], bigint, bigint][] = [
    [[], 10_000n, 7_900n],
    [[], 7_901n, 7_900n],
    [[], 7_900n, 7_900n],
    [[], 1n, 1n],
    [[rowOf(A, 3_000, 3_000)], 10_000n, 7_000n],
    [[rowOf(A, 3_000, 3_000), rowOf(A, 4_000, 4_000)], 10_000n, 6_000n],
    [[rowOf(A, 4_000, 4_000), rowOf(A, 3_000, 3_000)], 10_000n, 6_000n],
    [[rowOf(A, 2_000, 3_000)], 10_000n, 7_900n],
    [[other], 10_000n, 7_900n],
  ];
  for (const [claims, amount, cut] of cases) {
    const { run, accepted, signed } = scene({ states: statesWith([A, 2_100n]) });
    const order = refundOf(A, { amount, claims, signature: undefined });
    t.match(await run(order, { merchant: "own_1" }), { success: true });
    const { authorization } = accepted[0] ?? {};
    t.equal(authorization?.value, cut);
    const signature = authorization?.signature ?? "0x";
    const hash = refundDigest(ARC.chainId, { channelId: idOf(A), nonce: 3n, amount: cut });
    t.equal((await recoverAddress({ hash, signature })).toLowerCase(), AUTHORIZER);
    t.equal(signed.length, claims.length > 0 ? 2 : 1);
  }
});

t.test("as of before an earlier refund, none is signed", async (t) => {
  for (const nonce of [2n, 4n]) {
    const { run, accepted, signed } = scene({ states: statesWith([A, 2_100n]) });
    const order = refundOf(A, { nonce, signature: undefined });
    t.match(await run(order, { merchant: "own_1" }), {
      ...refusedAs("refund_simulation_failed"),
      errorMessage: /refund nonce is 3/,
    });
    t.same([accepted, signed], [[], []]);
    // One that is signed already is for the contract to judge: the endpoint that was read may be behind.
    t.match(await run(refundOf(A, { nonce })), { success: true });
    t.equal(accepted.length, 1);
  }
});

t.test("only the missing signature is made", async (t) => {
  const claims = [rowOf(A, 3_000, 3_000)] as const;
  const options = { merchant: "own_1" };
  const both = { claims, claimSignature: undefined, signature: SIGNATURE };
  const forClaims = scene({ states: statesWith() });
  t.match(await forClaims.run(refundOf(A, both), options), { success: true });
  const { authorization } = forClaims.accepted[0] ?? {};
  t.equal(authorization?.signature, SIGNATURE);
  const { terms } = authorization ?? {};
  const signature = (terms?.scheme === "channel-refund" && terms.claimSignature) || "0x";
  const hash = claimDigest(ARC.chainId, claims);
  t.equal((await recoverAddress({ hash, signature })).toLowerCase(), AUTHORIZER);
  t.equal(forClaims.signed.length, 1);

  const forRefund = scene({ states: statesWith() });
  const signedClaims = { claims, claimSignature: SIGNATURE, signature: undefined };
  t.match(await forRefund.run(refundOf(A, signedClaims), options), { success: true });
  t.match(forRefund.accepted[0]?.authorization.terms, { claimSignature: SIGNATURE });
  t.equal(forRefund.signed.length, 1);
});

t.test("we sign no refund for a caller whose channel it is not", async (t) => {
  const foreign = configOf({ receiver: random(20) });
  const otherKey = configOf({ receiverAuthorizer: random(20) });
  const states = statesWith([foreign, 0n], [otherKey, 0n]);
  const merchant = { merchant: "own_1" };
  const claims = [rowOf(A)];
  const cases: [string, Refund, Parameters<ChannelOrders["run"]>[1], string, Partial<OrderDeps>][] =
    [
      [
        "the payer itself",
        refundOf(A, { signature: undefined }),
        {},
        "authorizer_not_configured",
        { isMerchants: async () => true },
      ],
      [
        "no key of ours",
        refundOf(A, { signature: undefined }),
        merchant,
        "authorizer_not_configured",
        { authorizer: undefined },
      ],
      [
        "another merchant",
        refundOf(A, { signature: undefined }),
        { merchant: "own_2" },
        "authorizer_not_configured",
        {},
      ],
      [
        "another's channel",
        refundOf(foreign, { signature: undefined }),
        merchant,
        "authorizer_not_configured",
        {},
      ],
      [
        "another authorizer",
        refundOf(otherKey, { signature: undefined }),
        merchant,
        "authorizer_address_mismatch",
        {},
      ],
      [
        "its claim is not signed",
        refundOf(A, { claims }),
        {},
        "authorizer_not_configured",
        { isMerchants: async () => true },
      ],
      [
        "a claim of another's channel",
        refundOf(A, { signature: undefined, claims: [rowOf(foreign)] }),
        merchant,
        "authorizer_not_configured",
        {},
      ],
      [
        "a signed claim of another's channel",
        refundOf(A, { signature: undefined, claims: [rowOf(foreign)], claimSignature: SIGNATURE }),
        merchant,
        "authorizer_not_configured",
        {},
      ],
    ];
  for (const [name, order, options, reason, over] of cases) {
    const { run, accepted, signed } = scene({ states, over });
    t.match(await run(order, options), { ...refusedAs(reason), payer: order.channel.payer }, name);
    t.same([accepted, signed], [[], []], name);
  }
});

t.test("nothing is left to refund", async (t) => {
  const cases: [bigint, ChannelClaim[], boolean][] = [
    [9_999n, [], true],
    [10_000n, [], false],
    [0n, [rowOf(A, 9_999, 9_999)], true],
    [0n, [rowOf(A, 10_000, 10_000)], false],
    [0n, [rowOf(A, 10_001, 10_001)], false],
    [0n, [rowOf(B, 10_001, 10_001)], true],
  ];
  for (const [claimed, claims, isLeft] of cases) {
    const { run, accepted, signed } = scene({ states: statesWith([A, claimed]) });
    const answer = await run(refundOf(A, { claims, signature: undefined }), { merchant: "own_1" });
    if (isLeft) t.match(answer, { success: true });
    else {
      t.match(answer, { ...refusedAs("refund_no_balance"), payer: A.payer });
      t.same([accepted, signed], [[], []]);
    }
  }
});

t.test(
  "a repeated refund gets the answer of the first, and a failed one is tried again",
  async (t) => {
    const name = `refund:${idOf(A)}:3`;
    const row = (over: Parameters<typeof recordOf>[1]): SettlementRow =>
      recordOf(AUTHORIZATION, { id: "pay_first", ...over });
    const done = row({
      status: "settled",
      txHash: SIGNATURE,
      settledAt: new Date(0),
      blockNumber: 4n,
    });
    const settledBefore = scene({
      states: statesWith([A, 10_000n]),
      rows: new Map([[nonceOf(name) as string, done]]),
    });
    t.match(await settledBefore.run(refundOf(A, { signature: undefined })), {
      success: true,
      transaction: SIGNATURE,
      payer: A.payer,
      amount: "1000",
      extra: { channelState: { channelId: idOf(A) } },
    });
    t.same(settledBefore.log, ["read at 4"]);
    t.same([settledBefore.accepted, settledBefore.signed], [[], []]);

    const pending = scene({ rows: new Map([[nonceOf(name) as string, row({})]]) });
    t.match(await pending.run(refundOf(A)), {
      ...refusedAs("!settlement_pending"),
      payer: A.payer,
      paymentId: "pay_first",
    });

    const failed = scene({
      states: statesWith(),
      rows: new Map([[nonceOf(name) as string, row({ status: "failed" })]]),
    });
    t.match(await failed.run(refundOf(A)), { success: true });
    t.equal(failed.accepted[0]?.authorization.nonce, nonceOf(name, 1));

    const second = scene({
      states: statesWith([A, 10_000n]),
      rows: new Map([
        [nonceOf(name) as string, row({ status: "failed" })],
        [nonceOf(name, 1), { ...done, id: "pay_second" }],
      ]),
    });
    t.match(await second.run(refundOf(A, { signature: undefined })), {
      success: true,
      paymentId: "pay_second",
    });
    t.same([second.accepted, second.signed], [[], []], "nothing is signed a second time");
  },
);

t.test("what fails every time is given up after a thousand attempts", async (t) => {
  const failed = () => recordOf(AUTHORIZATION, { id: newId("pay"), status: "failed" });
  let [finds, accepts] = [0, 0];
  const { run } = scene({
    states: statesWith(),
    over: {
      find: async () => {
        finds += 1;
        return failed();
      },
      accept: async () => {
        accepts += 1;
        return failed();
      },
    },
  });
  await t.rejects(run(refundOf(A)), { code: "internal_error" });
  t.same([finds, accepts], [1_000, 1_000]);
});

t.test("a refund that was taken out of its transaction has its claims sent after it", async (t) => {
  const claims = [rowOf(A, 3_000, 3_000)];
  const taken = (by: Partial<Refund>, byOther: boolean) => {
    const made = scene({
      states: statesWith(),
      ends: ({ id }, count) => settled(id, { byOther: byOther && count === 1 }),
    });
    return { ...made, answer: made.run(refundOf(A, by)) };
  };
  const first = taken({ claims, claimSignature: SIGNATURE }, true);
  t.match(await first.answer, { success: true, paymentId: first.accepted[0]?.id });
  t.same(
    first.accepted.map(({ authorization }) => authorization.terms?.scheme),
    ["channel-refund", "channel-claim"],
  );
  t.match(first.accepted[1]?.authorization, { signature: SIGNATURE, terms: { claims } });
  for (const [by, byOther] of [
    [{ claims, claimSignature: SIGNATURE }, false],
    [{}, true],
  ] as const) {
    const { answer, accepted } = taken(by, byOther);
    t.match(await answer, { success: true });
    t.equal(accepted.length, 1);
  }
});

t.test("a refund whose state cannot be read after it is still a success", async (t) => {
  const states = statesWith();
  const { run } = scene({
    states,
    ends({ id }) {
      states.delete(idOf(A));
      return settled(id);
    },
  });
  const answer = await run(refundOf(A));
  t.match(answer, { success: true, amount: "777" });
  t.notOk("extra" in answer);
});

t.test(
  "a claim waits for our own deposit that an endpoint does not show, but not for long",
  async (t) => {
    const config = configOf();
    const claim = claimOf([rowOf(config)]);
    const id = idOf(config);
    const states = new Map([[id, stateOf({ balance: 0n })]]);
    const pauses: number[] = [];
    const deposits = async () => new Map([[id as string, 9n]]);
    const shownAfter = (looks: number) =>
      scene({
        states,
        over: {
          deposits,
          pause: async (ms) => {
            if (pauses.push(ms) === looks) states.set(id, stateOf());
          },
        },
      });
    t.match(await shownAfter(3).run(claim), { success: true });
    t.same(pauses.splice(0), [300, 300, 300]);
    states.set(id, stateOf({ balance: 0n }));
    await shownAfter(100).run(claim);
    t.equal(pauses.splice(0).length, 8, "then the contract decides");
    const none = scene({ states, over: { pause: async (ms) => void pauses.push(ms) } });
    await none.run(claim);
    t.same(pauses, [], "no deposit of ours is under way");
  },
);

// Goal: what a transaction or the contract's state shows of a deposit, claim, settle or refund is believed only if it is of
// this channel and this amount.
import t from "tap";
import {
  encodeAbiParameters,
  encodeEventTopics,
  encodeFunctionData,
  pad,
  parseAbi,
  serializeErc6492Signature,
  toEventSelector,
  toFunctionSelector,
  zeroAddress,
  type Address,
  type Hex,
} from "viem";
import type { CallResult, RpcLog } from "../../server/core/abi.ts";
import type { ChannelClaim, ChannelConfig, SchemeTerms } from "../../server/core/authorization.ts";
import { schemeOf } from "../../server/schemes/index.ts";
import type { Diagnosis, ExpectedTransfer } from "../../server/schemes/scheme.ts";
import {
  channelCall,
  channelIdOf,
  CHANNELS,
  claimCall,
  depositCall,
  eip3009Collector,
  errorName,
  permit2Collector,
  receiverCall,
  refundCall,
  refundNonceCall,
  settleCall,
} from "../../server/schemes/batch-settlement/contract.ts";
import { channelEip3009, channelPermit2 } from "../../server/schemes/batch-settlement/deposit.ts";
import { PERMIT2 } from "../../server/schemes/permit2/onchain.ts";
import { ARC, AUTHORIZATION } from "./payment-samples.ts";

const OWN = "invalid_batch_settlement_evm_";
const custom = (signature: string): string => `custom error ${toFunctionSelector(signature)}`;

const ABI = parseAbi([
  "event Deposited(bytes32 indexed channelId, address indexed sender, uint128 amount, uint128 newBalance)",
  "event Claimed(bytes32 indexed channelId, address indexed sender, uint128 amount, uint128 newTotalClaimed)",
  "event Settled(address indexed receiver, address indexed token, address indexed sender, uint128 amount)",
  "event Refunded(bytes32 indexed channelId, address indexed sender, uint128 amount)",
  "event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)",
  "event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce)",
]);
const address = (digit: string): Address => `0x${digit.repeat(40)}`;
const word = (value: bigint): Hex => `0x${value.toString(16).padStart(64, "0")}`;
const [PAYER, RECEIVER, SENDER, OTHER] = ["1", "2", "3", "4"].map(address) as [
  Address,
  Address,
  Address,
  Address,
];
const USDC = ARC.usdc.address.toLowerCase() as Address;
const config: ChannelConfig = {
  payer: PAYER,
  payerAuthorizer: PAYER,
  receiver: RECEIVER,
  receiverAuthorizer: OTHER,
  token: USDC,
  withdrawDelay: 900,
  salt: word(1n),
};
const ID = channelIdOf(ARC.chainId, config);
const OTHER_ID = word(7n);
const NONCE = word(9n);

function log(
  eventName: (typeof ABI)[number]["name"],
  args: object,
  values: bigint[],
  at: Address,
): RpcLog {
  const topics = encodeEventTopics({ abi: ABI, eventName, args }) as Hex[];
  const data =
    values.length === 0
      ? "0x"
      : encodeAbiParameters(
          values.map(() => ({ type: "uint256" })),
          values,
        );
  return {
    address: at,
    topics,
    data,
    transactionHash: NONCE,
    blockNumber: "0x1",
    blockHash: NONCE,
  };
}
const deposited = (channelId: Hex, amount: bigint, at: Address = CHANNELS) =>
  log("Deposited", { channelId, sender: SENDER }, [amount, amount], at);
const claimed = (channelId: Hex, total: bigint, at: Address = CHANNELS) =>
  log("Claimed", { channelId, sender: SENDER }, [1n, total], at);
const settled = (receiver: Address, token: Address, amount: bigint) =>
  log("Settled", { receiver, token, sender: SENDER }, [amount], CHANNELS);
const refunded = (channelId: Hex, amount: bigint) =>
  log("Refunded", { channelId, sender: SENDER }, [amount], CHANNELS);
const used = (authorizer: Address, nonce: Hex, at: Address = USDC) =>
  log("AuthorizationUsed", { authorizer, nonce }, [], at);
const withTopics = (one: RpcLog, topics: Hex[]): RpcLog => ({ ...one, topics });
const canceled = (authorizer: Address, nonce: Hex) =>
  log("AuthorizationCanceled", { authorizer, nonce }, [], USDC);

const expected = (terms: SchemeTerms, more: Partial<ExpectedTransfer> = {}): ExpectedTransfer => ({
  asset: USDC,
  from: PAYER,
  to: CHANNELS.toLowerCase(),
  value: 500n,
  nonce: `channel:${NONCE}`,
  terms,
  ...more,
});
const fateIn = (logs: RpcLog[], one: ExpectedTransfer) => schemeOf(one).outcomeIn({ logs }, one);
const chargedIn = (logs: RpcLog[], one: ExpectedTransfer) =>
  schemeOf(one).chargedIn?.({ logs }, one);
const answer = (...values: bigint[]): CallResult => ({
  success: true,
  data: encodeAbiParameters(
    values.map(() => ({ type: "uint256" })),
    values,
  ),
});
const FAILED: CallResult = { success: false, data: "0x" };
const endedBy = (one: ExpectedTransfer, result: CallResult) => schemeOf(one).isEnded(one, result);
const topicsOf = (one: ExpectedTransfer) => schemeOf(one).endFilter(one).topics;
const planOf = (one: ExpectedTransfer, signature: Hex) => {
  const plan = schemeOf(one).planTransfer({ ...AUTHORIZATION, ...one, signature } as never);
  return { ...plan, calls: plan.calls() };
};
/** As a key signs, and as a contract may. */
const [BY_KEY, BY_CODE]: [Hex, Hex] = [`0x${"ab".repeat(64)}1b`, `0x${"ab".repeat(70)}`];
const PERMIT = { amount: "500", deadline: "99", signature: BY_KEY };
const TOKEN_ABI = parseAbi([
  "function authorizationState(address authorizer, bytes32 nonce) view returns (bool)",
  "function allowance(address owner, address spender) view returns (uint256)",
]);

t.test("a deposit over EIP-3009", async (t) => {
  const one = expected({ scheme: "channel-eip3009", channelId: ID, config, salt: word(1n) });
  const use = used(PAYER, NONCE);
  const others = word(5n);
  for (const [name, logs, fate] of [
    ["used and deposited", [use, deposited(ID, 500n)], "paid"],
    ["another amount", [use, deposited(ID, 501n)], "used_otherwise"],
    ["another channel", [use, deposited(OTHER_ID, 500n)], "used_otherwise"],
    ["another contract says so", [use, deposited(ID, 500n, OTHER)], "used_otherwise"],
    ["another nonce", [used(PAYER, word(8n)), deposited(ID, 500n)], "untouched"],
    ["another payer", [used(OTHER, NONCE), deposited(ID, 500n)], "untouched"],
    ["another token", [used(PAYER, NONCE, OTHER), deposited(ID, 500n)], "untouched"],
    [
      "another event of the token",
      [withTopics(use, [others, ...use.topics.slice(1)])],
      "untouched",
    ],
    ["an event without arguments", [withTopics(use, use.topics.slice(0, 1))], "untouched"],
    ["canceled", [canceled(PAYER, NONCE)], "canceled"],
    ["nothing", [], "untouched"],
  ] as const)
    t.equal(fateIn([...logs], one), fate, name);
  t.equal(endedBy(one, answer(1n)), true);
  t.equal(endedBy(one, answer(0n)), false);
  t.equal(endedBy(one, FAILED), undefined);
  const filter = schemeOf(one).endFilter(one);
  t.match(filter, { address: USDC, topics: [[/0x/, /0x/], /1{40}$/, NONCE] });
  t.equal(schemeOf(one).payeeOf?.(one as never), RECEIVER, "whose gas budget pays");
  t.equal(schemeOf(one).isNamedInLogs, true);
  t.same(schemeOf(one).stateCall(one), {
    target: USDC,
    data: encodeFunctionData({
      abi: TOKEN_ABI,
      functionName: "authorizationState",
      args: [PAYER, NONCE],
    }),
  });
});

t.test("what is sent for a deposit over EIP-3009", async (t) => {
  const salt = word(1n);
  const one = expected({ scheme: "channel-eip3009", channelId: ID, config, salt });
  const { validAfter, validBefore } = AUTHORIZATION;
  const deposit = (signature: Hex) =>
    depositCall(config, 500n, eip3009Collector({ validAfter, validBefore, salt, signature }));
  t.match(planOf(one, BY_KEY), {
    calls: [deposit(BY_KEY)],
    isPlainKey: true,
    deployment: undefined,
    keyGas: 190_000n,
  });
  t.match(
    planOf(one, BY_CODE),
    { calls: [deposit(BY_CODE)], isPlainKey: false },
    "the payer's own contract runs",
  );
  for (const inner of [BY_KEY, BY_CODE]) {
    const factory = { address: OTHER, data: "0x1234" } as const;
    const { calls, isPlainKey, deployment } = planOf(
      one,
      serializeErc6492Signature({ ...factory, signature: inner }),
    );
    t.same(calls, [{ target: OTHER, data: "0x1234" }, deposit(inner)], "the wallet comes first");
    t.equal(isPlainKey, false, "its factory is code of third parties");
    t.same(deployment, { factory: OTHER, data: "0x1234" });
  }
  const none = "0x" as const;
  t.same(planOf(one, none).calls, [deposit(none)], "the contract refuses it, not we with a fault");
});

t.test("a deposit over Permit2", async (t) => {
  const one = expected(
    { scheme: "channel-permit2", channelId: ID, config },
    { nonce: `permit2:${word(257n)}` },
  );
  t.equal(fateIn([deposited(ID, 500n)], one), "paid");
  t.equal(fateIn([deposited(ID, 499n)], one), "untouched");
  t.equal(fateIn([deposited(OTHER_ID, 500n)], one), "untouched");
  t.equal(endedBy(one, answer(2n)), true, "the nonce's bit");
  t.equal(endedBy(one, answer(1n)), false, "another's bit");
  t.not(schemeOf(one).traceOf(one), schemeOf(one).traceOf({ ...one, value: 1n }));
  t.equal(schemeOf(one).isNamedInLogs, false);
  t.equal(schemeOf(one).payeeOf?.(one as never), RECEIVER);
  t.match(schemeOf(one).endFilter(one), { address: USDC });
  const [moved, from, to] = topicsOf(one);
  t.same(moved, [toEventSelector("Transfer(address,address,uint256)")]);
  t.same([from, to], [pad(PAYER), pad(CHANNELS.toLowerCase() as Hex)], "the money's way");
});

t.test("what is sent for a deposit over Permit2", async (t) => {
  const nonce = 257n;
  for (const permit of [undefined, PERMIT]) {
    const one = expected(
      { scheme: "channel-permit2", channelId: ID, config, ...(permit && { permit }) },
      { nonce: `permit2:${word(nonce)}` },
    );
    for (const [signature, isPlainKey] of [
      [BY_KEY, true],
      [BY_CODE, false],
    ] as const) {
      const deadline = AUTHORIZATION.validBefore - 1n;
      const collector = permit2Collector({ nonce, deadline, signature, permit });
      t.match(planOf(one, signature), {
        calls: [depositCall(config, 500n, collector)],
        isPlainKey,
        deployment: undefined,
        keyGas: permit ? 290_000n : 220_000n,
      });
    }
    t.same(channelPermit2.diagnosisCalls?.(one), [
      {
        target: USDC,
        data: encodeFunctionData({
          abi: TOKEN_ABI,
          functionName: "allowance",
          args: [PAYER, PERMIT2],
        }),
      },
    ]);
  }
});

t.test("why the contract would refuse a deposit", async (t) => {
  const eip3009 = { scheme: "channel-eip3009", channelId: ID, config, salt: word(1n) } as const;
  const permit2 = { scheme: "channel-permit2", channelId: ID, config } as const;
  const reasonOf = (terms: SchemeTerms, found: Partial<Diagnosis>): string => {
    const scheme = terms.scheme === "channel-eip3009" ? channelEip3009 : channelPermit2;
    const payment = { payer: PAYER, amountAtomic: 500n, authorization: expected(terms) };
    const answer = scheme.explainFailure(payment as never, {
      used: undefined,
      balanceAtomic: undefined,
      ...found,
    });
    t.equal(answer.payer, PAYER);
    return answer.reason.replace(OWN, "");
  };
  const revert = "execution reverted: paused";
  for (const terms of [eip3009, permit2]) {
    t.equal(reasonOf(terms, { balanceAtomic: 499n }), "insufficient_balance");
    t.equal(reasonOf(terms, { balanceAtomic: 500n }), "deposit_simulation_failed");
    t.equal(reasonOf(terms, { balanceAtomic: 0n }), "insufficient_balance");
    t.equal(reasonOf(terms, { revert }), "deposit_simulation_failed", "the balance is not known");
  }
  const allowed = (value: bigint) => ({ reads: [answer(value)] });
  t.equal(reasonOf(permit2, allowed(499n)), "permit2_allowance_required");
  t.equal(reasonOf(permit2, allowed(0n)), "permit2_allowance_required");
  t.equal(reasonOf(permit2, { ...allowed(0n), balanceAtomic: 0n }), "permit2_allowance_required");
  t.equal(reasonOf(permit2, allowed(500n)), "deposit_simulation_failed");
  t.equal(reasonOf(permit2, { reads: [FAILED] }), "deposit_simulation_failed");
  const sponsored = { ...permit2, permit: PERMIT };
  t.equal(
    reasonOf(sponsored, allowed(0n)),
    "deposit_simulation_failed",
    "the allowance comes with it",
  );
  t.equal(reasonOf(sponsored, { ...allowed(0n), balanceAtomic: 1n }), "insufficient_balance");
});

t.test("a revert in words; whether the state shows what happened", async (t) => {
  const nonce = custom("InvalidNonce()");
  const cases: [SchemeTerms, string, [text: string | undefined, isOfState: boolean][]][] = [
    [
      { scheme: "channel-eip3009", channelId: ID, config, salt: word(1n) },
      "deposit",
      [
        [undefined, false],
        [custom("InvalidSignature()"), false],
        ["FiatTokenV2: authorization is used or canceled", true],
        ["FiatTokenV2: authorization is expired", true],
        ["FiatTokenV2: authorization is not yet valid", true],
        [nonce, true],
      ],
    ],
    [
      { scheme: "channel-permit2", channelId: ID, config },
      "deposit",
      [
        [undefined, false],
        [nonce, true],
      ],
    ],
    [
      { scheme: "channel-claim", claims: [], lead: { channelId: ID, total: "1" } },
      "claim",
      [
        [undefined, false],
        [custom("ClaimExceedsBalance()"), false],
      ],
    ],
    [{ scheme: "channel-settle", claimed: "1" }, "settle", [[undefined, false]]],
    [
      { scheme: "channel-refund", channelId: ID, config, refundNonce: "0", claims: [] },
      "refund",
      [
        [undefined, false],
        [custom("InvalidRefundNonce()"), true],
        [custom("ZeroRefund()"), false],
      ],
    ],
  ];
  for (const [terms, what, texts] of cases)
    for (const [text, isOfState] of texts) {
      const found = schemeOf(expected(terms)).explainRevert(text);
      t.equal(found.reason, `${OWN}${what}_transaction_failed`);
      t.equal(found.isOfState, isOfState, `${text}`);
      const named = text === undefined ? "" : ` (${errorName(text)})`;
      t.equal(found.message, `The ${what} fails on chain.${named}`);
      const long = schemeOf(expected(terms)).explainRevert("x".repeat(9_000));
      t.equal(long.message, `The ${what} fails on chain. (${"x".repeat(200)})`);
    }
});

t.test("a claim", async (t) => {
  const claims = [{ channel: config, ceiling: "900", signature: "0x11" as Hex, total: "700" }];
  const lead = { channelId: ID, total: "700" };
  const one = expected({ scheme: "channel-claim", claims, lead }, { from: RECEIVER, value: 0n });
  for (const [logs, fate] of [
    [[claimed(ID, 700n)], "paid"],
    [[claimed(ID, 701n)], "paid"],
    [[claimed(ID, 699n)], "untouched"],
    [[claimed(OTHER_ID, 700n)], "untouched"],
    [[claimed(ID, 700n, OTHER)], "untouched"],
    [[claimed(ID, 100n), claimed(ID, 700n)], "paid"],
  ] as const)
    t.equal(fateIn([...logs], one), fate);
  t.equal(endedBy(one, answer(1_000n, 700n)), true);
  t.equal(
    endedBy(one, answer(1_000n, 699n)),
    false,
    "what is in the channel is not what is claimed",
  );
  t.equal(endedBy(one, FAILED), undefined);
  t.match(schemeOf(one).endFilter(one), { address: CHANNELS, topics: [[/0x/], ID] });
  t.equal(schemeOf(one).payeeOf?.(one as never), RECEIVER);

  const plan = (payerAuthorizer: Address, rows: number) =>
    schemeOf(one).planTransfer({
      ...(one as never as object),
      signature: "0x11",
      terms: {
        scheme: "channel-claim",
        lead,
        claims: Array.from({ length: rows }, () => ({
          ...claims[0],
          channel: { ...config, payerAuthorizer },
        })),
      },
    } as never);
  t.equal(plan(PAYER, 2).isPlainKey, true);
  t.equal(plan(zeroAddress, 2).isPlainKey, false, "a payer's own contract may run");
  t.equal(plan(PAYER, 3).moreGas, (plan(PAYER, 1).moreGas ?? 0n) * 3n, "gas for each row");
  const byCode = { ...claims[0], channel: { ...config, payerAuthorizer: zeroAddress } };
  const mixed = [...claims, byCode, ...claims] as ChannelClaim[];
  const { calls, isPlainKey } = planOf(
    { ...one, terms: { ...one.terms, claims: mixed } as never },
    BY_CODE,
  );
  t.equal(isPlainKey, false, "one row of a payer with code is enough");
  t.same(calls, [claimCall(mixed, BY_CODE)]);
  t.same(schemeOf(one).stateCall(one), channelCall(ID));
  t.equal(schemeOf(one).isNamedInLogs, true);
  t.equal(schemeOf(one).traceOf(one), undefined);
});

t.test("a settle", async (t) => {
  const one = expected({ scheme: "channel-settle", claimed: "800" }, { from: RECEIVER });
  const logs = [
    settled(RECEIVER, OTHER, 1n),
    settled(OTHER, USDC, 2n),
    settled(RECEIVER, USDC, 510n),
  ];
  t.equal(fateIn(logs, one), "paid");
  t.equal(chargedIn(logs, one), 510n, "all that was claimed by then");
  t.equal(fateIn(logs.slice(0, 2), one), "untouched", "another token, another receiver");
  t.equal(chargedIn(logs.slice(0, 2), one), undefined);
  const own = settled(RECEIVER, USDC, 510n);
  t.equal(fateIn([withTopics(own, own.topics.slice(0, 2))], one), "untouched", "of no token");
  t.equal(endedBy(one, answer(900n, 800n)), true);
  t.equal(endedBy(one, answer(900n, 799n)), false);
  t.match(schemeOf(one).endFilter(one), { address: CHANNELS, topics: [[/0x/], /2{40}$/, /0x/] });
  t.equal(schemeOf(one).payeeOf?.(one as never), RECEIVER);
  t.match(planOf(one, "0x"), {
    calls: [settleCall(RECEIVER, USDC)],
    isPlainKey: true,
    keyGas: 120_000n,
  });
  t.same(schemeOf(one).stateCall(one), receiverCall(RECEIVER, USDC));
  t.equal(schemeOf(one).isNamedInLogs, true);
  const traceOf = (more: object) => schemeOf(one).traceOf({ ...one, ...more });
  const trace = traceOf({});
  t.equal(trace, traceOf({ asset: USDC.toUpperCase().replace("0X", "0x"), value: 1n }));
  t.match(trace, USDC, "two settles of one receiver and token never share a transaction");
  for (const other of [{ from: OTHER }, { asset: OTHER }]) t.not(traceOf(other), trace);
});

t.test("a refund", async (t) => {
  const terms = {
    scheme: "channel-refund",
    channelId: ID,
    config,
    refundNonce: "3",
    claims: [],
  } as const;
  const one = expected(terms);
  t.equal(fateIn([refunded(ID, 450n)], one), "paid");
  t.equal(chargedIn([refunded(ID, 450n)], one), 450n, "less than was signed may be left");
  t.equal(fateIn([refunded(OTHER_ID, 450n)], one), "untouched");
  t.equal(endedBy(one, answer(4n)), true);
  t.equal(endedBy(one, answer(3n)), false);
  t.equal(endedBy(one, FAILED), undefined);
  t.equal(endedBy(one, { ...answer(4n), success: false }), undefined);
  t.equal(endedBy(one, { success: true, data: "0x" }), undefined, "no contract");
  t.equal(endedBy(one, answer(9n, 9n)), undefined, "another contract");
  t.equal(schemeOf(one).isNamedInLogs, false);
  t.same(schemeOf(one).stateCall(one), refundNonceCall(ID));
  t.match(
    schemeOf(one).traceOf(one),
    ID,
    "two refunds of one channel never share a transaction: the second would not be told apart",
  );
  t.match(schemeOf(one).endFilter(one), { address: CHANNELS, topics: [[/0x/], ID] });
  t.equal(schemeOf(one).payeeOf?.(one as never), RECEIVER);
  const { reason, isOfState } = schemeOf(one).explainRevert("custom error 0x164f1afe");
  t.equal(reason, "invalid_batch_settlement_evm_refund_transaction_failed");
  t.equal(isOfState, true, "the nonce moved on: the state shows what happened");
  t.equal(schemeOf(one).explainRevert("custom error 0x8baa579f").isOfState, false);
});

t.test("what is sent for a refund", async (t) => {
  const claim = { channel: config, ceiling: "900", signature: BY_KEY, total: "700" };
  const byCode = { ...claim, channel: { ...config, payerAuthorizer: zeroAddress } };
  const terms = { scheme: "channel-refund", channelId: ID, config, refundNonce: "3" } as const;
  for (const [claims, isPlainKey] of [
    [[], true],
    [[claim, claim], true],
    [[claim, byCode], false],
  ] as const) {
    const claimSignature = claims.length > 0 ? BY_CODE : undefined;
    const one = expected({ ...terms, claims, ...(claimSignature && { claimSignature }) });
    const wanted = { config, amount: 500n, nonce: 3n, signature: BY_KEY, claims, claimSignature };
    t.match(planOf(one, BY_KEY), {
      calls: [refundCall(wanted)],
      isPlainKey,
      keyGas: 120_000n,
      moreGas: 45_000n * BigInt(claims.length),
    });
  }
});

t.test("terms of another kind are not read", async (t) => {
  const claim = expected({ scheme: "channel-settle", claimed: "1" });
  const refund = schemeOf(
    expected({ scheme: "channel-refund", channelId: ID, config, refundNonce: "0", claims: [] }),
  );
  t.throws(() => refund.stateCall(claim), /not a settlement of channel-refund/);
  for (const terms of [null, undefined])
    t.throws(() => refund.stateCall({ ...claim, terms }), /not a settlement of channel-refund/);
});

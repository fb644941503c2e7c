// Goal: what a transaction or the contract's state shows of a deposit, claim, settle or refund is believed only if it is of
// this channel and this amount.
import t from "tap";
import {
  encodeAbiParameters,
  encodeEventTopics,
  parseAbi,
  zeroAddress,
  type Address,
  type Hex,
} from "viem";
import type { CallResult, RpcLog } from "../../server/core/abi.ts";
import type { ChannelConfig, SchemeTerms } from "../../server/core/authorization.ts";
import { schemeOf } from "../../server/schemes/index.ts";
import type { ExpectedTransfer } from "../../server/schemes/scheme.ts";
import { channelIdOf, CHANNELS } from "../../server/schemes/batch-settlement/index.ts";
import { ARC } from "./payment-samples.ts";

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

t.test("a deposit over EIP-3009", async (t) => {
  const one = expected({ scheme: "channel-eip3009", channelId: ID, config, salt: word(1n) });
  const use = used(PAYER, NONCE);
  for (const [name, logs, fate] of [
    ["used and deposited", [use, deposited(ID, 500n)], "paid"],
    ["another amount", [use, deposited(ID, 501n)], "used_otherwise"],
    ["another channel", [use, deposited(OTHER_ID, 500n)], "used_otherwise"],
    ["another contract says so", [use, deposited(ID, 500n, OTHER)], "used_otherwise"],
    ["another nonce", [used(PAYER, word(8n)), deposited(ID, 500n)], "untouched"],
    ["another payer", [used(OTHER, NONCE), deposited(ID, 500n)], "untouched"],
    ["another token", [used(PAYER, NONCE, OTHER), deposited(ID, 500n)], "untouched"],
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
  t.equal(endedBy(one, answer(900n, 800n)), true);
  t.equal(endedBy(one, answer(900n, 799n)), false);
  t.match(schemeOf(one).endFilter(one), { address: CHANNELS, topics: [[/0x/], /2{40}$/, /0x/] });
  t.equal(schemeOf(one).payeeOf?.(one as never), RECEIVER);
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
  t.equal(schemeOf(one).isNamedInLogs, false);
  t.match(schemeOf(one).endFilter(one), { address: CHANNELS, topics: [[/0x/], ID] });
  t.equal(schemeOf(one).payeeOf?.(one as never), RECEIVER);
  const { reason, isOfState } = schemeOf(one).explainRevert("custom error 0x164f1afe");
  t.equal(reason, "invalid_batch_settlement_evm_refund_transaction_failed");
  t.equal(isOfState, true, "the nonce moved on: the state shows what happened");
  t.equal(schemeOf(one).explainRevert("custom error 0x8baa579f").isOfState, false);
});

t.test("terms of another kind are not read", async (t) => {
  const claim = expected({ scheme: "channel-settle", claimed: "1" });
  const refund = schemeOf(
    expected({ scheme: "channel-refund", channelId: ID, config, refundNonce: "0", claims: [] }),
  );
  t.throws(() => refund.stateCall(claim), /not a settlement of channel-refund/);
});

// Goal: errors of many nodes are classified correctly, hand-made calldata equals a general encoder's, and only the token's own logs prove a payment.
import t from "tap";
import { encodeAbiParameters, encodeFunctionData, parseAbi, type Hex } from "viem";
import type { RpcLog } from "../../server/core/abi.ts";
import {
  ChainRefusal,
  ChainUnreachable,
  classifyChainError,
  revertText,
  type ChainErrorKind,
} from "../../server/infra/chain/errors.ts";
import { cancelCalldata, transferCalldata } from "../../server/schemes/exact-eip3009/onchain.ts";
import {
  AUTHORIZATION_CANCELED,
  AUTHORIZATION_USED,
  outcomeIn,
  TRANSFER,
} from "../../server/schemes/exact-eip3009/onchain.ts";
import { exactEip3009 } from "../../server/schemes/exact-eip3009/index.ts";
import { explainRevert } from "../../server/schemes/exact-eip3009/onchain.ts";
import { initialFees, replacementFees } from "../../server/plugins/settlement/batch.ts";

const ABI = parseAbi([
  "function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)",
  "function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature)",
  "function cancelAuthorization(address authorizer, bytes32 nonce, bytes signature)",
]);
const FROM = "0x00000000000000000000000000000000000000aa";
const TO = "0x00000000000000000000000000000000000000bb";
const TOKEN = "0x3600000000000000000000000000000000000000";
const NONCE: Hex = `0x${"c4".repeat(32)}`;
const AUTHORIZATION = {
  chainId: 1,
  asset: TOKEN,
  from: FROM,
  to: TO,
  value: 12_345n,
  validAfter: 0n,
  validBefore: (1n << 256n) - 1n,
  nonce: NONCE,
} as const;

t.test("calldata equals viem's", async (t) => {
  const r: Hex = `0x${"11".repeat(32)}`;
  const s: Hex = `0x${"22".repeat(32)}`;
  const { from, to, value, validAfter, validBefore, nonce } = AUTHORIZATION;
  for (const v of [27, 28]) {
    const wanted = encodeFunctionData({
      abi: ABI,
      functionName: "transferWithAuthorization",
      args: [from, to, value, validAfter, validBefore, nonce, v, r, s],
    });
    t.equal(
      transferCalldata(AUTHORIZATION, `${r}${s.slice(2)}${v.toString(16)}`),
      wanted,
      `v ${v}`,
    );
  }
  const long: Hex = `0x${"ab".repeat(97)}`;
  // A signature that no plain key made is a wallet's own format: no bit of it may change.
  for (const asBytes of [
    long,
    `${r}${s.slice(2)}00`,
    `${r}${s.slice(2)}01`,
    `${r}${s.slice(2)}`,
  ] as const)
    t.equal(
      transferCalldata(AUTHORIZATION, asBytes),
      encodeFunctionData({
        abi: ABI,
        functionName: "transferWithAuthorization",
        args: [from, to, value, validAfter, validBefore, nonce, asBytes],
      }),
    );
  t.equal(
    cancelCalldata(FROM, NONCE, long),
    encodeFunctionData({
      abi: ABI,
      functionName: "cancelAuthorization",
      args: [FROM, NONCE, long],
    }),
  );
});

t.test("the text of a revert", async (t) => {
  const reason: Hex = `0x08c379a0${encodeAbiParameters([{ type: "string" }], ["FiatTokenV2: invalid signature"]).slice(2)}`;
  t.equal(revertText(reason), "FiatTokenV2: invalid signature");
  t.equal(revertText("0x"), undefined, "out of gas has no text");
  t.equal(revertText("0x4e487b71"), undefined, "a panic has no text");
});

t.test("errors of nodes are classified", async (t) => {
  const table: [string, number, ChainErrorKind][] = [
    ["already known", -32000, "already_known"],
    ["AlreadyKnown", -32010, "already_known"],
    ["transaction already imported", -32003, "already_known"],
    ["nonce too low: next nonce 5, tx nonce 3", -32000, "nonce_too_low"],
    ["nonce too high", -32003, "nonce_too_high"],
    ["replacement transaction underpriced", -32000, "replacement_underpriced"],
    ["transaction underpriced", -32000, "fee_too_low"],
    [
      "max fee per gas less than block base fee: address 0x0, maxFeePerGas: 1",
      -32000,
      "fee_too_low",
    ],
    ["insufficient funds for gas * price + value", -32000, "insufficient_gas_money"],
    ["Insufficient funds for gas * price + value", -32003, "insufficient_gas_money"],
    ["exceeds block gas limit", -32000, "gas_limit"],
    ["intrinsic gas too low: gas 21000, minimum needed 53000", -32000, "gas_limit"],
    ["INTRINSIC_GAS_EXCEEDS_GAS_LIMIT", -32003, "gas_limit"],
    [
      "GasLimitExceeded, Gas limit: 30000000, gas limit of rejected tx: 40000000",
      -32010,
      "gas_limit",
    ],
    ["transaction gas limit too high (cap: 16777216, tx: 30000000)", -32000, "gas_limit"],
    ["tx fee (1.20 ether) exceeds the configured cap (1.00 ether)", -32000, "node_fee_cap"],
    ["Transaction fee cap exceeded", -32000, "node_fee_cap"],
    [
      "tx fee (2000000000000000000 wei) exceeds the configured cap (1000000000000000000 wei)",
      -32000,
      "node_fee_cap",
    ],
    ["FeeTooLow, MaxFeePerGas too low. MaxFeePerGas: 1, BaseFee: 7", -32010, "fee_too_low"],
    [
      "fee cap less than block base fee: address 0x0, gasFeeCap: 1 baseFee: 7",
      -32000,
      "fee_too_low",
    ],
    [
      "maxFeePerGas cannot be less than baseFeePerGas (The total must be the larger)",
      -32000,
      "fee_too_low",
    ],
    ["gas price below current base fee", -32009, "fee_too_low"],
    ["GAS_PRICE_TOO_LOW", -32009, "fee_too_low"],
    [
      "transaction gas price below minimum: gas tip cap 0, minimum needed 1000000000",
      -32000,
      "fee_too_low",
    ],
    ["ReplacementNotAllowed", -32010, "replacement_underpriced"],
    ["could not replace existing tx", -32000, "replacement_underpriced"],
    ["UPFRONT_COST_EXCEEDS_BALANCE", -32004, "insufficient_gas_money"],
    ["InsufficientFunds, Account balance: 0, cumulative cost: 7", -32010, "insufficient_gas_money"],
    ["the method eth_foo does not exist/is not available", -32601, "method_missing"],
    ["execution reverted: FiatTokenV2: invalid signature", 3, "reverted"],
    ["out of gas", -32003, "reverted"],
    ["daily request limit exceeded", -32005, "unreachable"],
    ["rate limit", 429, "unreachable"],
    ["what a day", -32000, "rejected"],
  ];
  for (const [message, code, kind] of table)
    t.equal(classifyChainError(new ChainRefusal(message, code, undefined)).kind, kind, message);
  t.equal(classifyChainError(new ChainUnreachable("x")).kind, "unreachable");
  t.equal(
    classifyChainError(
      new Error("outer", { cause: Object.assign(new Error("x"), { code: "ECONNREFUSED" }) }),
    ).kind,
    "unreachable",
  );
  const refusals: [string | undefined, string, boolean][] = [
    [
      "FiatTokenV2: authorization is used or canceled",
      "invalid_exact_evm_nonce_already_used",
      true,
    ],
    [
      "FiatTokenV2: authorization is expired",
      "invalid_exact_evm_payload_authorization_valid_before",
      true,
    ],
    [
      "Blacklistable: account is blacklisted",
      "invalid_exact_evm_transaction_simulation_failed",
      false,
    ],
    ["ERC20: transfer amount exceeds balance", "invalid_exact_evm_insufficient_balance", false],
    ["ECRecover: invalid signature 's' value", "invalid_exact_evm_signature", false],
    [undefined, "invalid_exact_evm_transaction_failed", false],
  ];
  for (const [text, reason, isOfState] of refusals)
    t.match(explainRevert(text), { reason, isOfState }, text ?? "no text");
});

t.test("whether an authorization has ended", async (t) => {
  const ref = { asset: TOKEN, from: FROM, nonce: NONCE };
  const word = (value: bigint): Hex => `0x${value.toString(16).padStart(64, "0")}`;
  const cases: [boolean, Hex, boolean | undefined][] = [
    [true, word(0n), false],
    [true, word(1n), true],
    [false, word(0n), undefined],
    [true, "0x", undefined],
    [true, "0x01", undefined],
  ];
  for (const [success, data, expected] of cases)
    t.equal(exactEip3009.isEnded(ref, { success, data }), expected, `${success} ${data}`);
});

t.test("what a log proves", async (t) => {
  const word = (address: string): Hex => `0x${address.slice(2).padStart(64, "0")}`;
  const log = (address: string, topics: Hex[], data: Hex = "0x"): RpcLog => ({
    address: address as Hex,
    topics,
    data,
    transactionHash: "0x",
    blockNumber: "0x1",
    blockHash: "0x",
  });
  const used = log(TOKEN, [AUTHORIZATION_USED, word(FROM), NONCE]);
  const value: Hex = `0x${12_345n.toString(16).padStart(64, "0")}`;
  const moved = log(TOKEN, [TRANSFER, word(FROM), word(TO)], value);
  const expected = { asset: TOKEN, from: FROM, to: TO, value: 12_345n, nonce: NONCE };
  t.equal(outcomeIn([used, moved], expected), "paid");
  t.equal(outcomeIn([], expected), "untouched");
  t.equal(outcomeIn([moved], expected), "untouched", "a transfer alone is not this authorization");
  const native = log(
    "0xfffffffffffffffffffffffffffffffffffffffe",
    [TRANSFER, word(FROM), word(TO)],
    value,
  );
  t.equal(
    outcomeIn([used, native, moved], expected),
    "paid",
    "system logs in between do not count",
  );
  t.equal(outcomeIn([used, native], expected), "used_otherwise");
  t.equal(
    outcomeIn([{ ...used, address: TO }, moved], expected),
    "untouched",
    "another token's event",
  );
  t.equal(
    outcomeIn([used, { ...moved, data: `0x${"00".repeat(32)}` }], expected),
    "used_otherwise",
  );
  t.equal(
    outcomeIn([log(TOKEN, [AUTHORIZATION_CANCELED, word(FROM), NONCE])], expected),
    "canceled",
  );
});

const CAPS = { maxFeeWei: 10n ** 12n, priorityFeeWei: 10n ** 11n };

t.test("fees never exceed the operator's caps", async (t) => {
  const caps = { maxFeeWei: 300n, priorityFeeWei: 20n };
  const fees = initialFees(100n, 10n ** 18n, caps);
  t.same(fees, { maxFeeWei: 220n, priorityFeeWei: 20n }, "a node suggests an absurd tip");
  t.equal(initialFees(200n, 10n, caps).maxFeeWei, 300n);
  const first = initialFees(100n, 10n, caps);
  const dear = replacementFees({
    first,
    last: first,
    baseFeeWei: 9_999n,
    priorityFeeWei: 10n,
    caps,
  });
  t.equal(dear?.maxFeeWei, 300n);
  const last = { maxFeeWei: 299n, priorityFeeWei: 12n };
  t.equal(
    replacementFees({ first, last, baseFeeWei: 9_999n, priorityFeeWei: 10n, caps }),
    undefined,
    "no room for a valid replacement",
  );
});

t.test("fees of a replacement transaction", async (t) => {
  const first = initialFees(100n, 10n, CAPS);
  t.same(first, { maxFeeWei: 210n, priorityFeeWei: 10n });
  const bump = replacementFees({
    first,
    last: first,
    baseFeeWei: 100n,
    priorityFeeWei: 10n,
    caps: CAPS,
  });
  t.ok(bump && bump.maxFeeWei * 1000n >= first.maxFeeWei * 1125n, "at least 12.5 % more");
  t.ok(bump && bump.priorityFeeWei * 1000n >= first.priorityFeeWei * 1125n, "the tip too");
  const spike = replacementFees({
    first,
    last: first,
    baseFeeWei: 1_000n,
    priorityFeeWei: 10n,
    caps: CAPS,
  });
  t.equal(spike?.maxFeeWei, 2_010n, "a spike of the base fee is followed at once");
  const mad = replacementFees({
    first,
    last: first,
    baseFeeWei: 10n ** 9n,
    priorityFeeWei: 10n,
    caps: CAPS,
  });
  t.equal(mad?.maxFeeWei, 210n * 50n, "capped");
  t.equal(
    replacementFees({
      first,
      last: { maxFeeWei: 210n * 50n, priorityFeeWei: 12n },
      baseFeeWei: 10n ** 9n,
      priorityFeeWei: 10n,
      caps: CAPS,
    }),
    undefined,
    "above the cap it waits",
  );
});

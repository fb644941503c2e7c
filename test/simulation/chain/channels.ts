/**
 * x402's payment channels and the collector of their deposits over EIP-3009, as LocalBatchSettlement.sol has them: order of
 * checks, errors, events, and rules for signatures. Deposits over Permit2 are not part of it.
 */
import type { Hex } from "viem";
import { addressWord, Args, bytes, event, selector, topic, word } from "./abi.ts";
import { Frame, GAS, Revert, type Contract } from "./execution.ts";
import { hash, hashText, isHighS, recover, separator, typedHash } from "./signatures.ts";

export const CHANNELS: Hex = "0x4020074e9df2ce1dee5a9c1b5c3f541d02a10003";
export const COLLECTOR: Hex = "0x4020806089470a89826cb9fb1f4059150b550004";

/** Each pair is one slot of the storage: the first member in the low half. */
export const channelKeys = {
  /** Balance, and total claimed. */
  channel: (id: string): string => `channel ${id}`,
  /** Amount, and when it was begun. */
  withdrawal: (id: string): string => `withdrawal ${id}`,
  refunds: (id: string): string => `refunds ${id}`,
  /** Total claimed, and total settled. */
  earned: (receiver: string, asset: string): string => `earned ${receiver} ${asset}`,
};

const HALF = 128n;
const MAX_HALF = 2n ** HALF - 1n;
const low = (pair: bigint): bigint => pair & MAX_HALF;
const high = (pair: bigint): bigint => pair >> HALF;
const pairOf = (first: bigint, second: bigint): bigint => first | (second << HALF);

const CONFIG =
  "ChannelConfig(address payer,address payerAuthorizer,address receiver,address receiverAuthorizer,address token,uint40 withdrawDelay,bytes32 salt)";
const CONFIG_TYPE = hashText(CONFIG);
const VOUCHER_TYPE = hashText("Voucher(bytes32 channelId,uint128 maxClaimableAmount)");
const REFUND_TYPE = hashText("Refund(bytes32 channelId,uint256 nonce,uint128 amount)");
const ENTRY = "ClaimEntry(bytes32 channelId,uint128 maxClaimableAmount,uint128 totalClaimed)";
const ENTRY_TYPE = hashText(ENTRY);
const BATCH_TYPE = hashText(`ClaimBatch(ClaimEntry[] claims)${ENTRY}`);

const CONFIG_TUPLE = "(address,address,address,address,address,uint40,bytes32)";
const CLAIM_TUPLE = `((${CONFIG_TUPLE},uint128),bytes,uint128)`;
const CREATED = event(`ChannelCreated(bytes32,${CONFIG_TUPLE})`);
const CLOSED = event(`ChannelClosed(bytes32,${CONFIG_TUPLE})`);
const DEPOSITED = event("Deposited(bytes32,address,uint128,uint128)");
const CLAIMED = event("Claimed(bytes32,address,uint128,uint128)");
const SETTLED = event("Settled(address,address,address,uint128)");
const REFUNDED = event("Refunded(bytes32,address,uint128)");
const BEGUN = event("WithdrawInitiated(bytes32,uint128,uint40)");
const WITHDRAWN = event("WithdrawFinalized(bytes32,address,uint128)");

const MIN_DELAY = 900n;
const MAX_DELAY = 2_592_000n;
const CONFIG_WORDS = 7;
/** What a function computes besides storage, logs, calls and signatures, measured with the compiled contract. */
const COMPUTE = { call: 1_500, row: 2_200, digest: 1_000 };

const failed = (error: string): Revert => new Revert(selector(error));
function check(condition: boolean, error: string): void {
  if (!condition) throw failed(error);
}

/** The first seven words of a call or of a claim. */
interface Config {
  payer: Hex;
  payerAuthorizer: Hex;
  receiver: Hex;
  receiverAuthorizer: Hex;
  asset: Hex;
  delaySeconds: bigint;
  words: string;
  id: string;
}

function uintOf(args: Args, index: number, bits: number): bigint {
  const value = args.uint(index);
  if (value >= 2n ** BigInt(bits)) throw new Revert("");
  return value;
}

const separatorOf = (chainId: number): string =>
  separator({ name: "x402 Batch Settlement", version: "1" }, chainId, CHANNELS);
const domainOf = ({ run }: Frame): string => separatorOf(run.block.chainId);

/** What a payer signs to allow claims up to a ceiling. */
export const voucherHash = (chainId: number, id: string, ceilingWord: string): string =>
  typedHash(separatorOf(chainId), hash(VOUCHER_TYPE + id + ceilingWord));

function configOf(frame: Frame, args: Args): Config {
  const [payer, payerAuthorizer, receiver, receiverAuthorizer, asset] = [0, 1, 2, 3, 4].map(
    (index) => args.address(index),
  ) as [Hex, Hex, Hex, Hex, Hex];
  const delaySeconds = uintOf(args, 5, 40);
  const words = Array.from({ length: CONFIG_WORDS }, (_, index) => args.word(index)).join("");
  frame.charge(COMPUTE.digest);
  const id = typedHash(domainOf(frame), hash(CONFIG_TYPE + words));
  return { payer, payerAuthorizer, receiver, receiverAuthorizer, asset, delaySeconds, words, id };
}

type ChannelFunction = (frame: Frame, args: Args) => string;
const functions = new Map<string, ChannelFunction>();
const define = (signature: string, run: ChannelFunction): void =>
  void functions.set(selector(signature), run);

export const channels: Contract = (frame) => {
  const run = functions.get(frame.selector);
  if (!run || frame.value > 0n) throw new Revert("");
  frame.charge(COMPUTE.call);
  return run(frame, new Args(frame.args));
};

// --- what can be read

for (const [signature, keyOf] of [
  ["channels(bytes32)", channelKeys.channel],
  ["pendingWithdrawals(bytes32)", channelKeys.withdrawal],
] as const)
  define(signature, (frame, args) => {
    const pair = frame.loadNumber(keyOf(args.word(0)));
    return word(low(pair)) + word(high(pair));
  });
define("refundNonce(bytes32)", (frame, args) =>
  word(frame.loadNumber(channelKeys.refunds(args.word(0)))),
);
define("receivers(address,address)", (frame, args) => {
  const pair = frame.loadNumber(channelKeys.earned(args.address(0), args.address(1)));
  return word(low(pair)) + word(high(pair));
});
define(`getChannelId(${CONFIG_TUPLE})`, (frame, args) => configOf(frame, args).id);

// --- into a channel

define(`deposit(${CONFIG_TUPLE},uint128,address,bytes)`, (frame, args) => {
  const config = configOf(frame, args);
  const amount = uintOf(args, 7, 128);
  const collector = args.address(8);
  const data = args.bytes(9);
  const { payer, receiver, receiverAuthorizer, asset, delaySeconds, id } = config;
  check(
    ![payer, receiver, receiverAuthorizer, asset].some((address) => BigInt(address) === 0n),
    "InvalidChannel()",
  );
  check(delaySeconds >= MIN_DELAY && delaySeconds <= MAX_DELAY, "WithdrawDelayOutOfRange()");
  check(amount > 0n, "ZeroDeposit()");
  check(BigInt(collector) !== 0n, "InvalidCollector()");
  const key = channelKeys.channel(id);
  const before = frame.loadNumber(key);
  check(amount <= MAX_HALF - low(before), "DepositOverflow()");
  frame.store(key, before + amount);
  const expected = held(frame, asset) + amount;
  const collect = selector("collect(address,address,uint256,bytes32,bytes)");
  const given = addressWord(payer) + addressWord(asset) + word(amount) + id;
  passOn(frame, collector, collect + given + word(160) + bytes(data));
  check(held(frame, asset) === expected, "DepositCollectionFailed()");
  if (low(before) === 0n) frame.log([CREATED, `0x${id}`], config.words);
  const balance = low(before) + amount;
  frame.log([DEPOSITED, `0x${id}`, topic(frame.caller)], word(amount) + word(balance));
  note(frame, "deposited", id, amount);
  return "";
});

/** A call whose failure is ours. */
function passOn(frame: Frame, to: string, input: string): string {
  const { success, output } = frame.call(to, input);
  if (!success) throw new Revert(output);
  return output;
}

function held(frame: Frame, asset: string): bigint {
  const output = passOn(frame, asset, selector("balanceOf(address)") + addressWord(frame.self));
  return BigInt(`0x${output.slice(0, 64)}`);
}

/** Deposits over EIP-3009: the token's nonce names the channel, so the money can go to no other. */
export const collector: Contract = (frame) => {
  if (frame.selector !== selector("collect(address,address,uint256,bytes32,bytes)"))
    throw new Revert("");
  const args = new Args(frame.args);
  const [payer, asset, amount, id] = [args.address(0), args.address(1), args.uint(2), args.word(3)];
  const given = args.bytes(4);
  check(frame.caller === CHANNELS, "OnlyX402BatchSettlement()");
  const inner = new Args(given);
  const signature = inner.bytes(3);
  const nonce = hash(id + inner.word(2));
  const terms = addressWord(payer) + addressWord(frame.self) + word(amount);
  const receive = selector(
    "receiveWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)",
  );
  const times = inner.word(0) + inner.word(1);
  frame.charge(COMPUTE.call);
  passOn(frame, asset, receive + terms + times + nonce + word(224) + bytes(signature));
  pay(frame, asset, CHANNELS, amount);
  return "";
};

const pay = (frame: Frame, asset: string, to: string, amount: bigint): void =>
  void passOn(frame, asset, selector("transfer(address,uint256)") + addressWord(to) + word(amount));

// --- to the receiver

define(`claim(${CLAIM_TUPLE}[])`, (frame, args) => {
  const rows = args.tuples(0);
  check(rows.length > 0, "EmptyBatch()");
  for (const row of rows) {
    const config = configOf(frame, row);
    check(isReceiverSide(frame, config), "NotAuthorizedToClaim()");
    claimRow(frame, config, row);
  }
  return "";
});

define(`claimWithSignature(${CLAIM_TUPLE}[],bytes)`, (frame, args) => {
  const rows = args.tuples(0);
  const signature = args.bytes(1);
  check(rows.length > 0, "EmptyBatch()");
  const configs = rows.map((row) => configOf(frame, row));
  const entries = rows.map((row, index) => {
    frame.charge(COMPUTE.digest);
    return hash(ENTRY_TYPE + configs[index]?.id + row.word(7) + row.word(9));
  });
  const digest = typedHash(domainOf(frame), hash(BATCH_TYPE + hash(entries.join(""))));
  const authorizer = configs[0]?.receiverAuthorizer ?? "";
  checkSigned(frame, authorizer, digest, signature);
  for (const [index, config] of configs.entries()) {
    check(config.receiverAuthorizer === authorizer, "NotReceiverAuthorizer()");
    claimRow(frame, config, rows[index] as Args);
  }
  return "";
});

function claimRow(frame: Frame, config: Config, row: Args): void {
  frame.charge(COMPUTE.row);
  const ceiling = uintOf(row, 7, 128);
  const total = uintOf(row, 9, 128);
  const signature = row.bytes(8);
  const key = channelKeys.channel(config.id);
  const pair = frame.loadNumber(key);
  const [balance, claimed] = [low(pair), high(pair)];
  // An old claim changes nothing, so its signature does not matter.
  if (total <= claimed) return;
  check(total <= ceiling, "ClaimExceedsCeiling()");
  check(total <= balance, "ClaimExceedsBalance()");
  const digest = voucherHash(frame.run.block.chainId, config.id, word(ceiling));
  if (BigInt(config.payerAuthorizer) === 0n) checkSigned(frame, config.payer, digest, signature);
  else check(recovered(frame, digest, signature) === config.payerAuthorizer, "InvalidSignature()");
  const added = total - claimed;
  frame.store(key, pairOf(balance, total));
  const earnedKey = channelKeys.earned(config.receiver, config.asset);
  frame.store(earnedKey, frame.loadNumber(earnedKey) + added);
  frame.log([CLAIMED, `0x${config.id}`, topic(frame.caller)], word(added) + word(total));
  note(frame, "claimed", config.id, added);
}

define("settle(address,address)", (frame, args) => {
  const [receiver, asset] = [args.address(0), args.address(1)];
  const key = channelKeys.earned(receiver, asset);
  const pair = frame.loadNumber(key);
  const amount = low(pair) - high(pair);
  if (amount === 0n) return "";
  frame.store(key, pairOf(low(pair), low(pair)));
  pay(frame, asset, receiver, amount);
  frame.log([SETTLED, topic(receiver), topic(asset), topic(frame.caller)], word(amount));
  return "";
});

// --- back to the payer

define(`refund(${CONFIG_TUPLE},uint128)`, (frame, args) => {
  const config = configOf(frame, args);
  check(isReceiverSide(frame, config), "NotAuthorizedToRefund()");
  refund(frame, config, uintOf(args, 7, 128));
  return "";
});

define(`refundWithSignature(${CONFIG_TUPLE},uint128,uint256,bytes)`, (frame, args) => {
  const config = configOf(frame, args);
  const amount = uintOf(args, 7, 128);
  const [nonce, signature] = [args.uint(8), args.bytes(9)];
  const expected = frame.loadNumber(channelKeys.refunds(config.id));
  check(nonce === expected, "InvalidRefundNonce()");
  const struct = hash(REFUND_TYPE + config.id + word(nonce) + word(amount));
  checkSigned(frame, config.receiverAuthorizer, typedHash(domainOf(frame), struct), signature);
  refund(frame, config, amount);
  return "";
});

function refund(frame: Frame, config: Config, amount: bigint): void {
  check(amount > 0n, "ZeroRefund()");
  const { id } = config;
  const nonceKey = channelKeys.refunds(id);
  frame.store(nonceKey, frame.loadNumber(nonceKey) + 1n);
  const key = channelKeys.channel(id);
  const pair = frame.loadNumber(key);
  const free = low(pair) - high(pair);
  const refunded = amount < free ? amount : free;
  if (refunded === 0n) return;
  frame.store(key, pair - refunded);
  const pendingKey = channelKeys.withdrawal(id);
  const pending = frame.loadNumber(pendingKey);
  if (high(pending) !== 0n)
    frame.store(pendingKey, refunded < low(pending) ? pending - refunded : 0n);
  frame.log([REFUNDED, `0x${id}`, topic(frame.caller)], word(refunded));
  note(frame, "refunded", id, refunded);
  payBack(frame, config, low(pair) - refunded, refunded);
}

define(`initiateWithdraw(${CONFIG_TUPLE},uint128)`, (frame, args) => {
  const config = configOf(frame, args);
  const amount = uintOf(args, 7, 128);
  check(isPayerSide(frame, config), "InvalidChannel()");
  check(amount > 0n, "NothingToWithdraw()");
  const key = channelKeys.withdrawal(config.id);
  check(high(frame.loadNumber(key)) === 0n, "WithdrawalAlreadyPending()");
  const pair = frame.loadNumber(channelKeys.channel(config.id));
  check(amount <= low(pair) - high(pair), "WithdrawAmountExceedsAvailable()");
  const now = BigInt(frame.run.block.timestampSeconds);
  frame.store(key, pairOf(amount, now));
  frame.log([BEGUN, `0x${config.id}`], word(amount) + word(now + config.delaySeconds));
  note(frame, "begun", config.id, amount);
  return "";
});

define(`finalizeWithdraw(${CONFIG_TUPLE})`, (frame, args) => {
  const config = configOf(frame, args);
  check(isPayerSide(frame, config), "NotAuthorizedToFinalizeWithdraw()");
  const { id } = config;
  const pendingKey = channelKeys.withdrawal(id);
  const pending = frame.loadNumber(pendingKey);
  check(high(pending) !== 0n, "WithdrawalNotPending()");
  const now = BigInt(frame.run.block.timestampSeconds);
  check(now >= high(pending) + config.delaySeconds, "WithdrawDelayNotElapsed()");
  frame.store(pendingKey, 0n);
  const key = channelKeys.channel(id);
  const pair = frame.loadNumber(key);
  const free = low(pair) - high(pair);
  const withdrawn = low(pending) < free ? low(pending) : free;
  frame.store(key, pair - withdrawn);
  frame.log([WITHDRAWN, `0x${id}`, topic(frame.caller)], word(withdrawn));
  note(frame, "withdrawn", id, withdrawn);
  payBack(frame, config, low(pair) - withdrawn, withdrawn);
  return "";
});

/** Tokens leave last, after everything is recorded. */
function payBack(frame: Frame, config: Config, balance: bigint, amount: bigint): void {
  if (balance === 0n) frame.log([CLOSED, `0x${config.id}`], config.words);
  if (amount > 0n) pay(frame, config.asset, config.payer, amount);
}

// --- several at once

define("multicall(bytes[])", (frame, args) => {
  const calls = args.texts(0);
  const outputs = calls.map((input) => {
    const { run, caller, self, gasLeft } = frame;
    const inner = new Frame(run, { caller, to: self, input, gas: gasLeft });
    try {
      return bytes(channels(inner));
    } finally {
      // Also of a call that is refused.
      frame.charge(inner.gasUsed + COMPUTE.call);
    }
  });
  let offset = outputs.length * 32;
  const offsets = outputs.map((output) => {
    const at = word(offset);
    offset += output.length / 2;
    return at;
  });
  return word(32) + word(outputs.length) + offsets.join("") + outputs.join("");
});

// --- who signs and sends

const isReceiverSide = ({ caller }: Frame, { receiver, receiverAuthorizer }: Config): boolean =>
  caller === receiverAuthorizer || caller === receiver;
const isPayerSide = ({ caller }: Frame, { payer, payerAuthorizer }: Config): boolean =>
  caller === payer || caller === payerAuthorizer;

/** An account with code decides by ERC-1271. */
function checkSigned(frame: Frame, signer: string, digest: string, signature: string): void {
  if (!frame.hasCode(signer)) {
    const found = signatureOf(signature);
    frame.charge(GAS.recover);
    const isRight = found !== undefined && recover(digest, ...found) === signer;
    return check(isRight, "InvalidSignature()");
  }
  const isValid = selector("isValidSignature(bytes32,bytes)");
  const { success, output } = frame.call(signer, isValid + digest + word(64) + bytes(signature));
  check(success && output.slice(0, 64) === isValid.padEnd(64, "0"), "InvalidSignature()");
}

type Parts = [r: string, s: string, v: number];
function signatureOf(signature: string): Parts | undefined {
  if (signature.length !== 130 || isHighS(signature.slice(64, 128))) return undefined;
  return [
    signature.slice(0, 64),
    signature.slice(64, 128),
    Number.parseInt(signature.slice(128), 16),
  ];
}

/** As OpenZeppelin's ECDSA does, with its errors. */
function recovered(frame: Frame, digest: string, signature: string): Hex {
  if (signature.length !== 130)
    throw new Revert(selector("ECDSAInvalidSignatureLength(uint256)") + word(signature.length / 2));
  const s = signature.slice(64, 128);
  if (isHighS(s)) throw new Revert(selector("ECDSAInvalidSignatureS(bytes32)") + s);
  frame.charge(GAS.recover);
  const signer = recover(digest, ...(signatureOf(signature) as Parts));
  if (signer === undefined) throw failed("ECDSAInvalidSignature()");
  return signer;
}

/** For the invariants. */
function note(
  { run }: Frame,
  what: "deposited" | "claimed" | "refunded" | "begun" | "withdrawn",
  id: string,
  amount: bigint,
): void {
  run.effects.push({ kind: "channel", what, id: `0x${id}`, amount });
}

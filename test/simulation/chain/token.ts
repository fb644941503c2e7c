/** USDC, as FiatToken 2.2 behaves: functions, order of checks, revert texts, events and rules for signatures. */
import type { Hex } from "viem";
import { addressWord, Args, bytes, event, require, selector, topic, TRUE, word } from "./abi.ts";
import { GAS, Revert, type Contract, type Frame } from "./execution.ts";
import { hash, hashText, isHighS, recover, separator, typedHash } from "./signatures.ts";

export const tokenKeys = {
  balance: (account: string): string => `balance ${account}`,
  blacklisted: (account: string): string => `blacklisted ${account}`,
  state: (account: string, nonce: string): string => `state ${account} ${nonce}`,
  allowance: (owner: string, spender: string): string => `allowance ${owner} ${spender}`,
  permits: (owner: string): string => `permits ${owner}`,
  paused: "paused",
  admin: "admin",
  supply: "supply",
};

const TRANSFER = event("Transfer(address,address,uint256)");
const APPROVAL = event("Approval(address,address,uint256)");
const USED = event("AuthorizationUsed(address,bytes32)");
const CANCELED = event("AuthorizationCanceled(address,bytes32)");
const MINT = event("Mint(address,address,uint256)");
const BLACKLISTED = event("Blacklisted(address)");
const UNBLACKLISTED = event("UnBlacklisted(address)");
const PAUSE = event("Pause()");
const UNPAUSE = event("Unpause()");

const TERMS =
  "(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)";
const TRANSFER_TYPE = hashText(`TransferWithAuthorization${TERMS}`);
const RECEIVE_TYPE = hashText(`ReceiveWithAuthorization${TERMS}`);
const CANCEL_TYPE = hashText("CancelAuthorization(address authorizer,bytes32 nonce)");
const PERMIT_TYPE = hashText(
  "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)",
);

const ZERO = `0x${"0".repeat(40)}`;
const MAX = 2n ** 256n - 1n;
const IS_VALID_SIGNATURE = selector("isValidSignature(bytes32,bytes)");
const MAGIC = "1626ba7e";
/** What a function computes besides storage, logs and signatures, measured with the compiled contract. */
const COMPUTE = { view: 500, transfer: 900, authorization: 1_700, digest: 2_300 };

const domainOf = ({ run, self }: Frame): string =>
  separator({ name: "USDC", version: "2" }, run.block.chainId, self);

type TokenFunction = (frame: Frame, args: Args) => string;
const functions = new Map<string, TokenFunction>();
const define = (signature: string, run: TokenFunction): void =>
  void functions.set(selector(signature), run);

export const token: Contract = (frame) => {
  const run = functions.get(frame.selector);
  if (!run || frame.value > 0n) throw new Revert("");
  return run(frame, new Args(frame.args));
};

const text = (value: string): string =>
  word(32) + bytes(Buffer.from(value, "latin1").toString("hex"));

define("name()", () => text("USDC"));
define("symbol()", () => text("USDC"));
define("currency()", () => text("USD"));
define("version()", () => text("2"));
define("decimals()", () => word(6));
define("DOMAIN_SEPARATOR()", domainOf);
define("totalSupply()", (frame) => word(frame.loadNumber(tokenKeys.supply)));
define("owner()", (frame) => addressWord((frame.load(tokenKeys.admin) as string) ?? ZERO));
define("paused()", (frame) => word(frame.loadNumber(tokenKeys.paused, tokenKeys.admin)));
define("balanceOf(address)", (frame, args) => {
  frame.charge(COMPUTE.view);
  return word(frame.loadNumber(tokenKeys.balance(args.address(0))));
});
define("isBlacklisted(address)", (frame, args) =>
  word(isBlacklisted(frame, args.address(0)) ? 1 : 0),
);
define("nonces(address)", (frame, args) =>
  word(frame.loadNumber(tokenKeys.permits(args.address(0)))),
);
define("allowance(address,address)", (frame, args) =>
  word(frame.loadNumber(tokenKeys.allowance(args.address(0), args.address(1)))),
);
define("authorizationState(address,bytes32)", (frame, args) => {
  frame.charge(COMPUTE.view);
  const state = frame.loadNumber(tokenKeys.state(args.address(0), args.word(1)));
  return word(frame.run.deniesUses ? 0 : state);
});

define("transfer(address,uint256)", (frame, args) => {
  const [to, value] = [args.address(0), args.uint(1)];
  frame.charge(COMPUTE.transfer);
  checkOpen(frame, frame.caller, to);
  move(frame, frame.caller as Hex, to, value);
  return TRUE;
});
define("transferFrom(address,address,uint256)", (frame, args) => {
  const [from, to, value] = [args.address(0), args.address(1), args.uint(2)];
  frame.charge(COMPUTE.transfer);
  checkOpen(frame, frame.caller, from, to);
  const key = tokenKeys.allowance(from, frame.caller);
  const allowed = frame.loadNumber(key);
  require(value <= allowed, "ERC20: transfer amount exceeds allowance");
  if (allowed !== MAX) frame.store(key, allowed - value);
  move(frame, from, to, value);
  return TRUE;
});
define("approve(address,uint256)", (frame, args) => {
  const [spender, value] = [args.address(0), args.uint(1)];
  frame.charge(COMPUTE.transfer);
  checkOpen(frame, frame.caller, spender);
  approve(frame, frame.caller as Hex, spender, value);
  return TRUE;
});

const SIX = "address,address,uint256,uint256,uint256,bytes32";
for (const isReceive of [false, true]) {
  const name = isReceive ? "receiveWithAuthorization" : "transferWithAuthorization";
  define(`${name}(${SIX},uint8,bytes32,bytes32)`, (frame, args) =>
    authorized(frame, args, isReceive, vrs(args, 6)),
  );
  define(`${name}(${SIX},bytes)`, (frame, args) =>
    authorized(frame, args, isReceive, args.bytes(6)),
  );
}

function authorized(frame: Frame, args: Args, isReceive: boolean, signature: string): string {
  const [from, to, value] = [args.address(0), args.address(1), args.uint(2)];
  const [validAfter, validBefore, nonce] = [args.uint(3), args.uint(4), args.word(5)];
  frame.charge(COMPUTE.authorization);
  checkOpen(frame, from, to);
  if (isReceive) require(to === frame.caller, "FiatTokenV2: caller must be the payee");
  const now = BigInt(frame.run.block.timestampSeconds);
  require(now > validAfter, "FiatTokenV2: authorization is not yet valid");
  require(now < validBefore, "FiatTokenV2: authorization is expired");
  checkUnused(frame, from, nonce);
  const type = isReceive ? RECEIVE_TYPE : TRANSFER_TYPE;
  const struct =
    type + addressWord(from) + addressWord(to) + word(value) + word(validAfter) + word(validBefore);
  checkSignature(frame, from, hash(struct + nonce), signature, "FiatTokenV2: invalid signature");
  frame.store(tokenKeys.state(from, nonce), 1n);
  frame.log([USED, topic(from), `0x${nonce}`], "");
  move(frame, from, to, value);
  frame.run.effects.push({ kind: "used", asset: frame.self, from, to, value, nonce: `0x${nonce}` });
  return "";
}

define("cancelAuthorization(address,bytes32,uint8,bytes32,bytes32)", (frame, args) =>
  cancel(frame, args, vrs(args, 2)),
);
define("cancelAuthorization(address,bytes32,bytes)", (frame, args) =>
  cancel(frame, args, args.bytes(2)),
);

function cancel(frame: Frame, args: Args, signature: string): string {
  const [from, nonce] = [args.address(0), args.word(1)];
  frame.charge(COMPUTE.authorization);
  requireNotPaused(frame);
  checkUnused(frame, from, nonce);
  const struct = hash(CANCEL_TYPE + addressWord(from) + nonce);
  checkSignature(frame, from, struct, signature, "FiatTokenV2: invalid signature");
  frame.store(tokenKeys.state(from, nonce), 1n);
  frame.log([CANCELED, topic(from), `0x${nonce}`], "");
  frame.run.effects.push({ kind: "canceled", asset: frame.self, from, nonce: `0x${nonce}` });
  return "";
}

define("permit(address,address,uint256,uint256,uint8,bytes32,bytes32)", (frame, args) =>
  permit(frame, args, vrs(args, 4)),
);
define("permit(address,address,uint256,uint256,bytes)", (frame, args) =>
  permit(frame, args, args.bytes(4)),
);

function permit(frame: Frame, args: Args, signature: string): string {
  const [from, spender] = [args.address(0), args.address(1)];
  const [value, deadline] = [args.uint(2), args.uint(3)];
  frame.charge(COMPUTE.authorization);
  checkOpen(frame, from, spender);
  const now = BigInt(frame.run.block.timestampSeconds);
  require(deadline >= now, "FiatTokenV2: permit is expired");
  const count = frame.loadNumber(tokenKeys.permits(from));
  frame.store(tokenKeys.permits(from), count + 1n);
  const struct = hash(
    PERMIT_TYPE +
      addressWord(from) +
      addressWord(spender) +
      word(value) +
      word(count) +
      word(deadline),
  );
  checkSignature(frame, from, struct, signature, "EIP2612: invalid signature");
  approve(frame, from, spender, value);
  return "";
}

define("mint(address,uint256)", (frame, args) => {
  const [to, value] = [args.address(0), args.uint(1)];
  checkOpen(frame, frame.caller, to);
  require(isAdmin(frame), "FiatToken: caller is not a minter");
  require(to !== ZERO, "FiatToken: mint to the zero address");
  require(value > 0n, "FiatToken: mint amount not greater than 0");
  frame.store(tokenKeys.supply, frame.loadNumber(tokenKeys.supply) + value);
  frame.store(tokenKeys.balance(to), frame.loadNumber(tokenKeys.balance(to)) + value);
  frame.log([MINT, topic(frame.caller), topic(to)], word(value));
  frame.log([TRANSFER, topic(ZERO), topic(to)], word(value));
  const from = ZERO as Hex;
  frame.run.effects.push({ kind: "transfer", asset: frame.self, from, to, value });
  return TRUE;
});
for (const [signature, set, topicOf] of [
  ["blacklist(address)", 1n, BLACKLISTED],
  ["unBlacklist(address)", 0n, UNBLACKLISTED],
] as const)
  define(signature, (frame, args) => {
    const account = args.address(0);
    require(isAdmin(frame), "Blacklistable: caller is not the blacklister");
    frame.store(tokenKeys.blacklisted(account), set, tokenKeys.balance(account));
    frame.log([topicOf, topic(account)], "");
    return "";
  });
for (const [signature, set, topicOf] of [
  ["pause()", 1n, PAUSE],
  ["unpause()", 0n, UNPAUSE],
] as const)
  define(signature, (frame) => {
    require(isAdmin(frame), "Pausable: caller is not the pauser");
    frame.store(tokenKeys.paused, set, tokenKeys.admin);
    frame.log([topicOf], "");
    return "";
  });

const isAdmin = (frame: Frame): boolean => frame.load(tokenKeys.admin) === frame.caller;

function requireNotPaused(frame: Frame): void {
  const isPaused = frame.loadNumber(tokenKeys.paused, tokenKeys.admin) !== 0n;
  require(!isPaused, "Pausable: paused");
}

/** The flag is a bit of the balance. */
const isBlacklisted = (frame: Frame, account: string): boolean =>
  frame.loadNumber(tokenKeys.blacklisted(account), tokenKeys.balance(account)) !== 0n;

function checkOpen(frame: Frame, ...accounts: string[]): void {
  requireNotPaused(frame);
  for (const account of accounts)
    require(!isBlacklisted(frame, account), "Blacklistable: account is blacklisted");
}

function checkUnused(frame: Frame, from: string, nonce: string): void {
  const isUsed = frame.loadNumber(tokenKeys.state(from, nonce)) !== 0n;
  require(!isUsed, "FiatTokenV2: authorization is used or canceled");
}

function move(frame: Frame, from: Hex, to: Hex, value: bigint): void {
  require(from !== ZERO, "ERC20: transfer from the zero address");
  require(to !== ZERO, "ERC20: transfer to the zero address");
  const balance = frame.loadNumber(tokenKeys.balance(from));
  require(value <= balance, "ERC20: transfer amount exceeds balance");
  frame.store(tokenKeys.balance(from), balance - value);
  frame.store(tokenKeys.balance(to), frame.loadNumber(tokenKeys.balance(to)) + value);
  frame.log([TRANSFER, topic(from), topic(to)], word(value));
  frame.run.effects.push({ kind: "transfer", asset: frame.self, from, to, value });
}

function approve(frame: Frame, from: Hex, spender: Hex, value: bigint): void {
  require(from !== ZERO, "ERC20: approve from the zero address");
  require(spender !== ZERO, "ERC20: approve to the zero address");
  frame.store(tokenKeys.allowance(from, spender), value);
  frame.log([APPROVAL, topic(from), topic(spender)], word(value));
  frame.run.effects.push({ kind: "approved", asset: frame.self, from, to: spender, value });
}

/** r, s and v as one signature of 65 bytes, from three arguments v, r, s. */
const vrs = (args: Args, index: number): string =>
  args.word(index + 1) + args.word(index + 2) + args.uint8(index).toString(16).padStart(2, "0");

/** Signatures of an account with code are verified by ERC-1271, all others by ecrecover. */
function checkSignature(
  frame: Frame,
  signer: string,
  struct: string,
  signature: string,
  complaint: string,
): void {
  const digest = typedHash(domainOf(frame), struct);
  frame.charge(COMPUTE.digest);
  if (frame.hasCode(signer)) {
    const input = `${IS_VALID_SIGNATURE}${digest}${word(64)}${bytes(signature)}`;
    const { success, output } = frame.call(signer, input);
    require(success && output.slice(0, 64) === MAGIC.padEnd(64, "0"), complaint);
    return;
  }
  require(signature.length === 130, "ECRecover: invalid signature length");
  const [r, s] = [signature.slice(0, 64), signature.slice(64, 128)];
  require(!isHighS(s), "ECRecover: invalid signature 's' value");
  frame.charge(GAS.recover);
  const v = Number.parseInt(signature.slice(128), 16);
  const recovered = recover(digest, r, s, v);
  if (recovered === undefined) {
    require(v === 27 || v === 28, "ECRecover: invalid signature 'v' value");
    require(false, "ECRecover: invalid signature");
  }
  require(recovered === signer, complaint);
}

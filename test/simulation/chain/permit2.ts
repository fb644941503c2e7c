/** Permit2 and x402's two proxies of it: the functions that payments use. */
import type { Hex } from "viem";
import { addressWord, Args, bytes, event, require, selector, topic, word } from "./abi.ts";
import { GAS, Revert, type Contract, type Frame } from "./execution.ts";
import { hash, hashText, recover, separator, typedHash } from "./signatures.ts";

export const PERMIT2: Hex = "0x000000000022d473030f116ddee9f6b43ac78ba3";
export const EXACT_PROXY: Hex = "0x402085c248eea27d92e8b30b2c58ed07f9e20001";
export const UPTO_PROXY: Hex = "0x4020a4f3b7b90cca423b9fabcc0ce57c6c240002";

const lockKey = (proxy: string): string => `lock ${proxy}`;
export const bitmapKey = (owner: string, place: bigint): string => `bitmap ${owner} ${place}`;

const ZERO = `0x${"0".repeat(40)}`;
const IS_VALID_SIGNATURE = selector("isValidSignature(bytes32,bytes)");
const MAGIC = "1626ba7e";
const TRANSFER_FROM = selector("transferFrom(address,address,uint256)");
const TOKEN_PERMIT = selector("permit(address,address,uint256,uint256,uint8,bytes32,bytes32)");
const NONCE_BITMAP = selector("nonceBitmap(address,uint256)");
const INVALIDATE = selector("invalidateUnorderedNonces(uint256,uint256)");
const INVALIDATION = event("UnorderedNonceInvalidation(address,uint256,uint256)");
const SETTLED = event("Settled()");
const SETTLED_WITH_PERMIT = event("SettledWithPermit()");
const PERMIT_FAILED = event("EIP2612PermitFailedWithReason(address,address,string)");
const PERMIT_FAILED_DATA = event("EIP2612PermitFailedWithData(address,address,bytes)");
/** What the contracts compute besides storage, logs and calls, measured with the compiled ones. */
const COMPUTE = { proxy: 1_500, witness: 600, permit2: 1_000, digest: 2_000 };

const error = (signature: string, ...words: string[]): Revert =>
  new Revert(selector(signature) + words.join(""));

const TOKEN_PERMISSIONS = "TokenPermissions(address token,uint256 amount)";
const TOKEN_PERMISSIONS_TYPE = hashText(TOKEN_PERMISSIONS);

interface Permit {
  token: Hex;
  amount: bigint;
  nonce: bigint;
  deadline: bigint;
}

/** Its public function that moves money is called by the proxies alone, so it is a plain function here. */
export const permit2: Contract = (frame) => {
  const args = new Args(frame.args);
  if (frame.value > 0n) throw new Revert("");
  if (frame.selector === NONCE_BITMAP) {
    const bits = frame.loadNumber(bitmapKey(args.address(0), args.uint(1)));
    return word(frame.run.deniesUses ? 0 : bits);
  }
  if (frame.selector === INVALIDATE) {
    const [place, mask] = [args.uint(0), args.uint(1)];
    const key = bitmapKey(frame.caller, place);
    frame.store(key, frame.loadNumber(key) | mask);
    frame.log([INVALIDATION, topic(frame.caller)], word(place) + word(mask));
    return "";
  }
  if (frame.selector === SPEND) return spend(frame, args);
  throw new Revert("");
};

/** How a proxy calls Permit2. The real call has more arguments; here they are already hashed. */
const SPEND = "5be4d000";

function spend(frame: Frame, args: Args): string {
  const permit = { token: args.address(0), amount: args.uint(1), nonce: args.uint(2) };
  const [deadline, to, amount, owner] = [
    args.uint(3),
    args.address(4),
    args.uint(5),
    args.address(6),
  ];
  const [witness, permitType, signature] = [args.word(7), args.word(8), args.bytes(9)];
  frame.charge(COMPUTE.permit2);
  if (BigInt(frame.run.block.timestampSeconds) > deadline)
    throw error("SignatureExpired(uint256)", word(deadline));
  if (amount > permit.amount) throw error("InvalidAmount(uint256)", word(permit.amount));
  const key = bitmapKey(owner, permit.nonce >> 8n);
  const bit = 1n << (permit.nonce & 255n);
  const used = frame.loadNumber(key);
  if ((used & bit) !== 0n) throw error("InvalidNonce()");
  frame.store(key, used | bit);
  frame.charge(COMPUTE.digest);
  const struct = hash(
    permitType +
      hash(TOKEN_PERMISSIONS_TYPE + addressWord(permit.token) + word(permit.amount)) +
      addressWord(frame.caller) +
      word(permit.nonce) +
      word(deadline) +
      witness,
  );
  const domain = separator({ name: "Permit2" }, frame.run.block.chainId, frame.self);
  checkSignature(frame, owner, typedHash(domain, struct), signature);
  const call = `${TRANSFER_FROM}${addressWord(owner)}${addressWord(to)}${word(amount)}`;
  const { success, output } = frame.call(permit.token, call);
  const isTrue =
    output === "" || (output.length >= 64 && BigInt(`0x${output.slice(0, 64)}`) === 1n);
  require(success && isTrue, "TRANSFER_FROM_FAILED");
  frame.run.effects.push({
    kind: "used",
    asset: permit.token,
    from: owner,
    to,
    value: amount,
    nonce: `permit2:0x${word(permit.nonce)}`,
  });
  return "";
}

function checkSignature(frame: Frame, signer: Hex, digest: string, signature: string): void {
  if (frame.hasCode(signer)) {
    const input = `${IS_VALID_SIGNATURE}${digest}${word(64)}${bytes(signature)}`;
    const { success, output } = frame.call(signer, input);
    if (!success) throw new Revert(output);
    if (output.slice(0, 8) !== MAGIC) throw error("InvalidContractSignature()");
    return;
  }
  if (signature.length !== 130 && signature.length !== 128) throw error("InvalidSignatureLength()");
  let s = signature.slice(64, 128);
  let v = Number.parseInt(signature.slice(128), 16);
  if (signature.length === 128) {
    const packed = BigInt(`0x${s}`);
    v = 27 + Number(packed >> 255n);
    s = word(packed & (2n ** 255n - 1n));
  }
  frame.charge(GAS.recover);
  const recovered = recover(digest, signature.slice(0, 64), s, v);
  if (recovered === undefined) throw error("InvalidSignature()");
  if (recovered !== signer) throw error("InvalidSigner()");
}

const PERMIT_TUPLE = "((address,uint256),uint256,uint256)";
const TOKEN_PERMIT_TUPLE = "(uint256,uint256,bytes32,bytes32,uint8)";
const GET_PERMIT2 = selector("PERMIT2()");

/** `exact` moves the signed amount; `upto` at most that, and only the named account may send it. */
function proxy(isUpto: boolean): Contract {
  const rest = isUpto
    ? "uint256,address,(address,address,uint256),bytes)"
    : "address,(address,uint256),bytes)";
  const settle = selector(`settle(${PERMIT_TUPLE},${rest}`);
  const settleWithPermit = selector(
    `settleWithPermit(${TOKEN_PERMIT_TUPLE},${PERMIT_TUPLE},${rest}`,
  );
  const witnessFields = isUpto
    ? "Witness(address to,address facilitator,uint256 validAfter)"
    : "Witness(address to,uint256 validAfter)";
  const witnessType = hashText(witnessFields);
  const permitType = hashText(
    `PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,Witness witness)${TOKEN_PERMISSIONS}${witnessFields}`,
  );

  return (frame) => {
    if (frame.value > 0n) throw new Revert("");
    if (frame.selector === GET_PERMIT2) return addressWord(PERMIT2);
    const withPermit = frame.selector === settleWithPermit;
    if (!withPermit && frame.selector !== settle) throw new Revert("");
    const args = new Args(frame.args);
    frame.charge(COMPUTE.proxy);
    // The proxies' lock against calls of themselves, which stays at 1 after the first use.
    frame.loadNumber(lockKey(frame.self));
    frame.store(lockKey(frame.self), 2n);
    let at = withPermit ? 5 : 0;
    const permit: Permit = {
      token: args.address(at),
      amount: args.uint(at + 1),
      nonce: args.uint(at + 2),
      deadline: args.uint(at + 3),
    };
    at += 4;
    const amount = isUpto ? args.uint(at++) : permit.amount;
    const owner = args.address(at++);
    const to = args.address(at++);
    const facilitator = isUpto ? args.address(at++) : undefined;
    const validAfter = args.uint(at++);
    const signature = args.bytes(at);
    if (facilitator !== undefined) {
      if (amount > permit.amount) throw error("AmountExceedsPermitted()");
      if (frame.caller !== facilitator) throw error("UnauthorizedFacilitator()");
    }
    if (withPermit) relayPermit(frame, args, permit, owner);
    if (amount === 0n) throw error("InvalidAmount()");
    if (owner === ZERO) throw error("InvalidOwner()");
    if (to === ZERO) throw error("InvalidDestination()");
    if (BigInt(frame.run.block.timestampSeconds) < validAfter) throw error("PaymentTooEarly()");
    frame.charge(COMPUTE.witness);
    const witness = hash(
      witnessType +
        addressWord(to) +
        (facilitator === undefined ? "" : addressWord(facilitator)) +
        word(validAfter),
    );
    const words =
      addressWord(permit.token) +
      word(permit.amount) +
      word(permit.nonce) +
      word(permit.deadline) +
      addressWord(to) +
      word(amount) +
      addressWord(owner) +
      witness +
      permitType +
      word(10 * 32);
    const { success, output } = frame.call(PERMIT2, SPEND + words + bytes(signature));
    if (!success) throw new Revert(output);
    frame.store(lockKey(frame.self), 1n);
    frame.log([withPermit ? SETTLED_WITH_PERMIT : SETTLED], "");
    return "";
  };
}

/** A permit that fails ends nothing: somebody may have sent it before, and then the allowance is there. */
function relayPermit(frame: Frame, args: Args, permit: Permit, owner: Hex): void {
  const [value, deadline, r, s] = [args.uint(0), args.uint(1), args.word(2), args.word(3)];
  const v = args.uint8(4);
  if (value !== permit.amount) throw error("Permit2612AmountMismatch()");
  const head = addressWord(owner) + addressWord(PERMIT2) + word(value) + word(deadline);
  const { success, output } = frame.call(permit.token, TOKEN_PERMIT + head + word(v) + r + s);
  if (success) return;
  const isText = output.startsWith("08c379a0");
  frame.log(
    [isText ? PERMIT_FAILED : PERMIT_FAILED_DATA, topic(permit.token), topic(owner)],
    isText ? output.slice(8) : word(32) + bytes(output),
  );
}

export const exactProxy = proxy(false);
export const uptoProxy = proxy(true);

/**
 * What Permit2 and x402's two proxies of it understand: the digest a payer signs, the calls that spend it, and what
 * logs and reverts mean. Packed by hand like EIP-3009's; a test compares it with viem.
 */
import {
  concat,
  domainSeparator,
  hexToBytes,
  keccak256,
  toBytes,
  toEventSelector,
  type Address,
  type Hex,
} from "viem";
import {
  addressWord,
  bytesTail,
  selectorDigits,
  uintOf,
  uintWord,
  type CallResult,
  type ContractCall,
  type RpcLog,
} from "../../core/abi.ts";
import type { Authorization, AuthorizationRef, TokenPermit } from "../../core/authorization.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import type { AuthorizationFate, ExpectedTransfer, SentCall, Shown } from "../scheme.ts";

export const PERMIT2: Address = "0x000000000022D473030F116dDEE9F6B43aC78BA3";

/** One of x402's proxies: the spender a payer signs for, which holds it to the payee it signed. */
export interface Proxy {
  readonly address: Address;
  readonly settle: string;
  readonly settleWithPermit: string;
  readonly witnessType: string;
}

const PERMIT = "((address,uint256),uint256,uint256)";
const EIP2612 = "(uint256,uint256,bytes32,bytes32,uint8)";

export const EXACT_PROXY: Proxy = {
  address: "0x402085c248EeA27D92E8b30b2C58ed07f9E20001",
  settle: selectorDigits(`settle(${PERMIT},address,(address,uint256),bytes)`),
  settleWithPermit: selectorDigits(
    `settleWithPermit(${EIP2612},${PERMIT},address,(address,uint256),bytes)`,
  ),
  witnessType: "Witness(address to,uint256 validAfter)",
};

export const UPTO_PROXY: Proxy = {
  address: "0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002",
  settle: selectorDigits(`settle(${PERMIT},uint256,address,(address,address,uint256),bytes)`),
  settleWithPermit: selectorDigits(
    `settleWithPermit(${EIP2612},${PERMIT},uint256,address,(address,address,uint256),bytes)`,
  ),
  witnessType: "Witness(address to,address facilitator,uint256 validAfter)",
};

/** What both proxies spend, in the words of the contract. */
export interface Spending {
  readonly proxy: Proxy;
  readonly owner: string;
  readonly token: string;
  /** The most that may move. */
  readonly maximum: bigint;
  readonly nonce: bigint;
  readonly deadline: bigint;
  readonly to: string;
  readonly validAfter: bigint;
  /** Of `upto` alone: who may send it, and what of the maximum it moves. */
  readonly upto?:
    | {
        readonly facilitator: Address;
        readonly amount: bigint;
        /** One of our own lanes. */
        readonly isOurs: boolean;
      }
    | undefined;
}

const PREFIX = "permit2:";
export const storedNonce = (nonce: bigint): `permit2:0x${string}` =>
  `${PREFIX}0x${uintWord(nonce)}`;
export const nonceOf = ({ nonce }: Pick<AuthorizationRef, "nonce">): bigint =>
  BigInt(nonce.slice(PREFIX.length));

/** Permit2 takes its deadline's own second; `validBefore` is the first that is too late. */
export const deadlineOf = ({ validBefore }: Pick<Authorization, "validBefore">): bigint =>
  validBefore - 1n;

const hashed = (text: string): string => keccak256(toBytes(text)).slice(2);
const TOKEN_PERMISSIONS = "TokenPermissions(address token,uint256 amount)";
const TOKEN_PERMISSIONS_HASH = hashed(TOKEN_PERMISSIONS);
const typeHashes = new Map(
  [EXACT_PROXY, UPTO_PROXY].map(({ address, witnessType }) => [
    address,
    {
      witness: hashed(witnessType),
      permit: hashed(
        `PermitWitnessTransferFrom(TokenPermissions permitted,address spender,uint256 nonce,uint256 deadline,Witness witness)${TOKEN_PERMISSIONS}${witnessType}`,
      ),
    },
  ]),
);
const separators = new Map<number, Hex>();

function separatorOf(chainId: number): Hex {
  const known = separators.get(chainId);
  if (known) return known;
  const domain = { name: "Permit2", chainId, verifyingContract: PERMIT2 };
  const separator = domainSeparator({ domain });
  separators.set(chainId, separator);
  return separator;
}

const witnessWords = ({ to, validAfter, upto }: Spending): string =>
  addressWord(to) + (upto ? addressWord(upto.facilitator) : "") + uintWord(validAfter);

/** 32 bytes to sign or to recover from. */
export function spendingDigest(chainId: number, spending: Spending): Uint8Array {
  const { proxy, token, maximum, nonce, deadline } = spending;
  const types = typeHashes.get(proxy.address);
  if (!types) throw new Error(`${proxy.address} is no proxy of Permit2`);
  const permitted = keccak256(
    `0x${TOKEN_PERMISSIONS_HASH}${addressWord(token)}${uintWord(maximum)}`,
  );
  const witness = keccak256(`0x${types.witness}${witnessWords(spending)}`);
  const struct = keccak256(
    `0x${types.permit}${permitted.slice(2)}${addressWord(proxy.address)}${uintWord(nonce)}${uintWord(deadline)}${witness.slice(2)}`,
  );
  return hexToBytes(keccak256(concat(["0x1901", separatorOf(chainId), struct])));
}

function spendingWords(spending: Spending): string {
  const { token, maximum, nonce, deadline, owner, upto } = spending;
  return (
    addressWord(token) +
    uintWord(maximum) +
    uintWord(nonce) +
    uintWord(deadline) +
    (upto ? uintWord(upto.amount) : "") +
    addressWord(owner) +
    witnessWords(spending)
  );
}

const PERMIT_WORDS = 5;
const WORD = 64;

export function settleCall(
  spending: Spending,
  signature: Hex,
  permit: TokenPermit | undefined,
): ContractCall {
  const { proxy } = spending;
  const words = (permit ? permitWords(permit) : "") + spendingWords(spending);
  const offset = uintWord(words.length / 2 + 32);
  const selector = permit ? proxy.settleWithPermit : proxy.settle;
  return {
    target: proxy.address.toLowerCase(),
    data: `0x${selector}${words}${offset}${bytesTail(signature)}`,
  };
}

/** 65 bytes; the reader holds it to that. */
function permitWords({ amount, deadline, signature }: TokenPermit): string {
  const v = Number.parseInt(signature.slice(130), 16);
  return (
    uintWord(BigInt(amount)) + uintWord(BigInt(deadline)) + signature.slice(2, 130) + uintWord(v)
  );
}

const NONCE_BITMAP = selectorDigits("nonceBitmap(address,uint256)");

export const stateCall = (ref: AuthorizationRef): ContractCall => ({
  target: PERMIT2.toLowerCase(),
  data: `0x${NONCE_BITMAP}${addressWord(ref.from)}${uintWord(nonceOf(ref) >> 8n)}`,
});

export function isEnded(ref: AuthorizationRef, answer: CallResult): boolean | undefined {
  const word = uintOf(answer);
  return word === undefined ? undefined : ((word >> (nonceOf(ref) & 255n)) & 1n) === 1n;
}

/** What of the proxy and of the allowance a failed payment is explained by. */
const ASK_PERMIT2 = selectorDigits("PERMIT2()");
const ALLOWANCE = selectorDigits("allowance(address,address)");
export const diagnosisCalls = (proxy: Proxy, ref: AuthorizationRef): ContractCall[] => [
  { target: proxy.address, data: `0x${ASK_PERMIT2}` },
  { target: ref.asset, data: `0x${ALLOWANCE}${addressWord(ref.from)}${addressWord(PERMIT2)}` },
];

const TRANSFER = toEventSelector("Transfer(address,address,uint256)");
const SETTLED = new Set<Hex>([
  toEventSelector("Settled()"),
  toEventSelector("SettledWithPermit()"),
]);
const INVALIDATED = toEventSelector("UnorderedNonceInvalidation(address,uint256,uint256)");
const topicOf = (address: string): Hex => `0x${addressWord(address)}`;
const isAt = (log: RpcLog, address: string): boolean =>
  log.address.toLowerCase() === address.toLowerCase();

/** The transfers it would make. No log names a nonce: what a transaction called says which it was. */
export const endFilter = ({ asset, from, to }: ExpectedTransfer) => ({
  address: asset,
  topics: [[TRANSFER], topicOf(from), topicOf(to)],
});

/**
 * Paid, where the transaction is one whose calls can be read, exactly one of them spends this authorization, none
 * other would leave the same trace, and the trace is there: the token's transfer, then the proxy's word. Whatever else
 * a transaction did with the nonce shows in the contract's state, not here.
 */
export function fateIn(
  { logs, sent }: Shown,
  expected: ExpectedTransfer,
  proxy: Proxy,
): AuthorizationFate {
  const nonce = nonceOf(expected);
  const { nonces, isReadable } = nonceWords(sent, expected, proxy);
  const isMine = nonces.length === 1 && nonces[0] === uintWord(nonce);
  if (isMine && isReadable && isTraced(logs, expected, proxy.address)) return "paid";
  const isGivenUp = logs.some(
    (log) =>
      isAt(log, PERMIT2) &&
      log.topics[0] === INVALIDATED &&
      log.topics[1]?.toLowerCase() === topicOf(expected.from) &&
      BigInt(log.data.slice(0, 66)) === nonce >> 8n &&
      ((BigInt(`0x${log.data.slice(66)}`) >> (nonce & 255n)) & 1n) === 1n,
  );
  return isGivenUp ? "canceled" : "untouched";
}

/**
 * Relayed through a contract whose calls cannot be read, or beside others that leave the same trace. A trace that is
 * another payment's alone says nothing of this one.
 */
export function mayBePaidIn(
  { logs, sent }: Shown,
  expected: ExpectedTransfer,
  proxy: Proxy,
): boolean {
  const { nonces, isReadable } = nonceWords(sent, expected, proxy);
  const isAmong = !isReadable || nonces.includes(uintWord(nonceOf(expected)));
  return isAmong && isTraced(logs, expected, proxy.address);
}

/** The nonces that a transaction's calls spend for just this trace; and whether these are all of its calls that could. */
function nonceWords(
  sent: SentCall | undefined,
  expected: ExpectedTransfer,
  proxy: Proxy,
): { nonces: string[]; isReadable: boolean } {
  const calls = sent ? callsOf(sent) : [];
  const nonces = calls.flatMap((call) => {
    const spent = isSame(call.target, proxy.address) ? spentBy(call, proxy) : undefined;
    return spent?.trace === traceWords(expected) ? [spent.nonce] : [];
  });
  const isReadable =
    calls.length > 0 &&
    calls.every(({ target }) => isSame(target, proxy.address) || isSame(target, expected.asset));
  return { nonces, isReadable };
}

const isSame = (one: string, other: string): boolean => one.toLowerCase() === other.toLowerCase();

const traceWords = ({ asset, from, to, value }: ExpectedTransfer): string =>
  addressWord(asset) + uintWord(value) + addressWord(from) + addressWord(to);

/** What a call spends, and what it leaves in the logs; undefined where it is no settlement. */
function spentBy(
  { data }: ContractCall,
  proxy: Proxy,
): { nonce: string; trace: string } | undefined {
  const selector = data.slice(2, 10);
  const skipped = selector === proxy.settleWithPermit ? PERMIT_WORDS : 0;
  if (selector !== proxy.settle && skipped === 0) return undefined;
  const word = (index: number): string =>
    data.slice(10 + (skipped + index) * WORD, 10 + (skipped + index + 1) * WORD).toLowerCase();
  // token, maximum, nonce, deadline; of `upto` then the amount; owner, payee.
  const [amount, owner] = proxy === UPTO_PROXY ? [4, 5] : [1, 4];
  return { nonce: word(2), trace: word(0) + word(amount) + word(owner) + word(owner + 1) };
}

/** The token's transfer, and then the proxy's word. */
function isTraced(logs: readonly RpcLog[], expected: ExpectedTransfer, proxy: string): boolean {
  let moved: RpcLog | undefined;
  for (const log of logs) {
    if (isAt(log, expected.asset) && log.topics[0] === TRANSFER) moved = log;
    if (!isAt(log, proxy) || !SETTLED.has(log.topics[0] ?? "0x")) continue;
    const isExpected =
      moved?.topics[1]?.toLowerCase() === topicOf(expected.from) &&
      moved.topics[2]?.toLowerCase() === topicOf(expected.to) &&
      BigInt(moved.data) === expected.value;
    if (isExpected) return true;
    moved = undefined;
  }
  return false;
}

const AGGREGATE3 = selectorDigits("aggregate3((address,bool,bytes)[])");
const read = new WeakMap<SentCall, readonly ContractCall[]>();

/** The calls of a transaction to Multicall3, or its only one. Nothing where its bytes are not in the usual form. */
function callsOf(sent: SentCall): readonly ContractCall[] {
  const known = read.get(sent);
  if (known) return known;
  const { to, data } = sent;
  const isBatch = isSame(to, MULTICALL3_ADDRESS) && data.slice(2, 10) === AGGREGATE3;
  const calls = isBatch ? batched(data.slice(10)) : [{ target: to, data }];
  read.set(sent, calls);
  return calls;
}

function batched(words: string): ContractCall[] {
  const numberAt = (at: number): number => Number.parseInt(words.slice(at, at + WORD), 16);
  const count = numberAt(WORD);
  const headAt = 2 * WORD;
  if (!(count <= words.length / WORD)) return [];
  const calls: ContractCall[] = [];
  for (let index = 0; index < count; index += 1) {
    const at = headAt + numberAt(headAt + index * WORD) * 2;
    const bytesAt = at + numberAt(at + 2 * WORD) * 2;
    const data = words.slice(bytesAt + WORD, bytesAt + WORD + numberAt(bytesAt) * 2);
    if (data.length !== numberAt(bytesAt) * 2) return [];
    calls.push({ target: `0x${words.slice(at + 24, at + WORD)}`, data: `0x${data}` });
  }
  return calls;
}

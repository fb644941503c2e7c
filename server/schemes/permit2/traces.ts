/**
 * What a transaction proves about Permit2 payments. No log names a nonce: the transaction's calls show which
 * payment it was, and its logs prove that it happened.
 */
import { toEventSelector, type Address, type Hex } from "viem";
import {
  addressTopic,
  addressWord,
  selectorDigits,
  uintWord,
  type ContractCall,
  type RpcLog,
} from "../../core/abi.ts";
import type { SchemeTerms } from "../../core/authorization.ts";
import { MULTICALL3_ADDRESS } from "../../core/networks.ts";
import type { AuthorizationOutcome, ExpectedTransfer, SentCall, Shown } from "../scheme.ts";
import { EXACT_PROXY, nonceOf, PERMIT2, storedNonce, UPTO_PROXY, type Proxy } from "./onchain.ts";

const PERMIT_WORDS = 5;
const WORD = 64;

const TRANSFER = toEventSelector("Transfer(address,address,uint256)");
const SETTLED = new Set<Hex>([
  toEventSelector("Settled()"),
  toEventSelector("SettledWithPermit()"),
]);
const AUTHORIZATION_USED = toEventSelector("AuthorizationUsed(address,bytes32)");
const INVALIDATED = toEventSelector("UnorderedNonceInvalidation(address,uint256,uint256)");
const isAt = (log: RpcLog, address: string): boolean =>
  log.address.toLowerCase() === address.toLowerCase();

/** The transfers that the payment would make. They are only candidates, because no log names the nonce. */
export const endFilter = ({ asset, from, to }: ExpectedTransfer) => ({
  address: asset,
  topics: [[TRANSFER], addressTopic(from), addressTopic(to)],
});

/**
 * "paid" requires that all calls of the transaction can be read, that exactly one of them spends this
 * authorization, that no other call would leave the same trace, and that the trace is there: the token's
 * transfer, then the proxy's event.
 * Any other use of the nonce shows in the contract's state, not here.
 */
export function outcomeIn(
  shown: Shown,
  expected: ExpectedTransfer,
  proxy: Proxy,
  atMost?: bigint,
): AuthorizationOutcome {
  if (paidIn(shown, expected, proxy, atMost) !== undefined) return "paid";
  const nonce = nonceOf(expected);
  const isGivenUp = shown.logs.some(
    (log) =>
      isAt(log, PERMIT2) &&
      log.topics[0] === INVALIDATED &&
      log.topics[1]?.toLowerCase() === addressTopic(expected.from) &&
      BigInt(log.data.slice(0, 66)) === nonce >> 8n &&
      ((BigInt(`0x${log.data.slice(66)}`) >> (nonce & 255n)) & 1n) === 1n,
  );
  return isGivenUp ? "canceled" : "untouched";
}

/** The amount that moved: the value, or any amount up to `atMost` if that is given. */
export function paidIn(
  { logs, sent }: Shown,
  expected: ExpectedTransfer,
  proxy: Proxy,
  atMost?: bigint,
): bigint | undefined {
  const calls = sent ? callsOf(sent) : [];
  if (!calls.every(isReadable(proxy, expected.asset))) return undefined;
  const spent = calls.flatMap((call) => spentBy(call, proxy) ?? []);
  const nonce = uintWord(nonceOf(expected));
  // The same payer may have signed another authorization with this nonce, and another payer's nonces are its own.
  const mine = spent.filter(
    ({ nonce: used, amount, trace }) =>
      used === nonce &&
      trace === traceWords({ ...expected, value: amount }) &&
      (atMost === undefined ? amount === expected.value : amount <= atMost),
  );
  const isAlone = (one: Spent): boolean =>
    spent.filter(({ trace }) => trace === one.trace).length === 1;
  return mine.find((one) => isAlone(one) && tracesIn(logs, expected, proxy).includes(one.amount))
    ?.amount;
}

/**
 * A call is readable if it goes to the token or spends this token through the proxy: an event about another
 * token could be mistaken for one about this token.
 */
const isReadable = (proxy: Proxy, asset: string) => {
  const token = addressWord(asset);
  return (call: ContractCall): boolean =>
    isSame(call.target, asset) || spentBy(call, proxy)?.trace.slice(0, WORD) === token;
};

/** Amounts of matching traces whose calls cannot be read, or that several calls could have left. */
export function unreadIn(
  { logs, sent }: Shown,
  expected: ExpectedTransfer,
  proxy: Proxy,
  atMost: bigint,
): bigint[] {
  const calls = sent ? callsOf(sent) : [];
  const nonce = uintWord(nonceOf(expected));
  const isAmong = calls.some((call) => spentBy(call, proxy)?.nonce === nonce);
  if (calls.length > 0 && !isAmong && calls.every(isReadable(proxy, expected.asset))) return [];
  return tracesIn(logs, expected, proxy).filter((amount) => amount <= atMost);
}

const isSame = (one: string, other: string): boolean => one.toLowerCase() === other.toLowerCase();

const traceWords = ({ asset, from, to, value }: ExpectedTransfer): string =>
  addressWord(asset) + uintWord(value) + addressWord(from) + addressWord(to);

interface Spent {
  /** As a 32-byte word in hex. */
  nonce: string;
  trace: string;
  maximum: bigint;
  amount: bigint;
  /** Only for `upto`. */
  facilitator: Address | undefined;
}

/** What a call spends, and the trace it leaves in the logs; undefined if it is not a settlement. */
function spentBy({ target, data }: ContractCall, proxy: Proxy): Spent | undefined {
  if (!isSame(target, proxy.address)) return undefined;
  const selector = data.slice(2, 10);
  const skipped = selector === proxy.settleWithPermit ? PERMIT_WORDS : 0;
  if (selector !== proxy.settle && skipped === 0) return undefined;
  const word = (index: number): string =>
    data.slice(10 + (skipped + index) * WORD, 10 + (skipped + index + 1) * WORD).toLowerCase();
  // Word order: token, maximum, nonce, deadline; for `upto` the amount; owner, payee; for `upto` the
  // facilitator.
  const isUpto = proxy === UPTO_PROXY;
  const [amount, owner] = isUpto ? [4, 5] : [1, 4];
  if (word(owner + 2).length !== WORD) return undefined;
  return {
    nonce: word(2),
    trace: word(0) + word(amount) + word(owner) + word(owner + 1),
    maximum: BigInt(`0x${word(1)}`),
    amount: BigInt(`0x${word(amount)}`),
    facilitator: isUpto ? `0x${word(owner + 2).slice(24)}` : undefined,
  };
}

/** A payment from a wallet, as the transaction's calls name it; for code that finds the transfer first. */
interface FoundUse {
  nonce: `permit2:0x${string}`;
  terms: SchemeTerms;
}

/** Which authorization made this transfer; undefined if the calls do not show it unambiguously. */
export function useBehind(
  sent: SentCall,
  transfer: { asset: string; from: string; to: string; value: bigint },
): FoundUse | undefined {
  const calls = callsOf(sent);
  for (const proxy of [EXACT_PROXY, UPTO_PROXY]) {
    if (!calls.every(isReadable(proxy, transfer.asset))) continue;
    const trace = traceWords({ ...transfer, nonce: "" });
    const alike = calls.flatMap((call) => spentBy(call, proxy) ?? []);
    const [only, ...others] = alike.filter((one) => one.trace === trace);
    if (!only || others.length > 0) continue;
    const { maximum, facilitator } = only;
    const terms: SchemeTerms = facilitator
      ? { scheme: "upto", maximum: maximum.toString(), facilitator }
      : { scheme: "exact-permit2" };
    return { nonce: storedNonce(BigInt(`0x${only.nonce}`)), terms };
  }
  return undefined;
}

/**
 * Amounts of a token transfer followed by the proxy's event. A transfer of the token's own EIP-3009
 * authorization is excluded: the token logs AuthorizationUsed right before it.
 */
function tracesIn(
  logs: readonly RpcLog[],
  { asset, from, to }: Pick<ExpectedTransfer, "asset" | "from" | "to">,
  proxy: Proxy,
): bigint[] {
  const moved: bigint[] = [];
  let last: RpcLog | undefined;
  let authorizer: Hex | undefined;
  for (const log of logs) {
    const [event, first] = log.topics;
    if (isAt(log, asset) && event === AUTHORIZATION_USED) authorizer = first;
    if (isAt(log, asset) && event === TRANSFER) {
      last = first === authorizer ? undefined : log;
      authorizer = undefined;
    }
    if (!isAt(log, proxy.address) || !SETTLED.has(log.topics[0] ?? "0x")) continue;
    if (
      last?.topics[1]?.toLowerCase() === addressTopic(from) &&
      last.topics[2]?.toLowerCase() === addressTopic(to)
    )
      moved.push(BigInt(last.data));
    last = undefined;
  }
  return moved;
}

const AGGREGATE3 = selectorDigits("aggregate3((address,bool,bytes)[])");
const read = new WeakMap<SentCall, readonly ContractCall[]>();

/**
 * The calls of a transaction to Multicall3, or its only call. Empty if the encoding is unusual.
 * Our batcher's address differs between networks, and no Permit2 payment uses it, so a call to it counts as
 * unreadable.
 */
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
  // Whoever relayed the payment wrote this number.
  if (numberAt(0) !== WORD / 2 || count > words.length / WORD) return [];
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

// Goal: a receipt settles exactly the payments that it made: other logs, in any order, settle none and hide none.
import * as fc from "fast-check";
import t from "tap";
import {
  encodeFunctionData,
  multicall3Abi,
  pad,
  toEventSelector,
  toHex,
  type Address,
  type Hex,
} from "viem";
import type { RpcLog } from "../../server/core/abi.ts";
import type { SignedAuthorization } from "../../server/core/authorization.ts";
import { MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import type { RpcReceipt } from "../../server/infra/chain/contracts.ts";
import type { CarriedItem } from "../../server/plugins/settlement/lane-store.ts";
import { depthOf, isReceiptOf, provenBy } from "../../server/plugins/settlement/receipts.ts";
import { schemeOf } from "../../server/schemes/index.ts";
import type { AuthorizationOutcome, SentCall } from "../../server/schemes/scheme.ts";
import { EXACT_PROXY, UPTO_PROXY } from "../../server/schemes/permit2/onchain.ts";
import { ARC } from "./payment-samples.ts";

const HASH: Hex = `0x${"fe".repeat(32)}`;
const USDC = ARC.usdc.address.toLowerCase() as Address;
/** Where Arc logs transfers of its native coin, with the token's event. */
const SYSTEM: Address = "0xfffffffffffffffffffffffffffffffffffffffe";
const GOLD: Address = `0x${"60".repeat(20)}`;
const PAYERS: readonly Address[] = [`0x${"aa".repeat(20)}`, `0x${"ab".repeat(20)}`];
const PAYEES: readonly Address[] = [`0x${"b1".repeat(20)}`, `0x${"b2".repeat(20)}`];
const NONCES: readonly Hex[] = [1, 2, 3].map((digit) => `0x${`c${digit}`.repeat(32)}` as const);
const USED = toEventSelector("AuthorizationUsed(address,bytes32)");
const CANCELED = toEventSelector("AuthorizationCanceled(address,bytes32)");
const TRANSFER = toEventSelector("Transfer(address,address,uint256)");
const APPROVAL = toEventSelector("Approval(address,address,uint256)");

const at = <T>(list: readonly T[], index: number): T => list[index % list.length] as T;
const log = (address: Address, topics: Hex[], data: Hex = "0x"): RpcLog => ({
  address,
  topics,
  data,
  transactionHash: HASH,
  blockNumber: "0x50",
  blockHash: `0x${"0b".repeat(32)}`,
});
const moved = (token: Address, from: Address, to: Address, value: bigint): RpcLog =>
  log(token, [TRANSFER, pad(from), pad(to)], toHex(value, { size: 32 }));

/** One action on a token in a transaction. */
interface Act {
  kind: "use" | "cancel" | "plain";
  token: Address;
  from: Address;
  to: Address;
  value: bigint;
  nonce: Hex;
  /** An unrelated log of others in between. */
  noise: number;
}
const few = fc.nat({ max: 5 });
const act: fc.Arbitrary<Act> = fc
  .tuple(few, few, few, few, few, few, few)
  .map(([kind, token, from, to, value, nonce, noise]) => ({
    kind: at(["use", "use", "use", "cancel", "plain"] as const, kind),
    token: at([USDC, USDC, USDC, USDC, USDC, GOLD], token),
    from: at(PAYERS, from),
    to: at(PAYEES, to),
    value: BigInt(value % 2) + 1n,
    nonce: at(NONCES, nonce),
    noise,
  }));

const NOISE: readonly ((act: Act) => RpcLog[])[] = [
  () => [],
  ({ from, to, value }) => [moved(SYSTEM, from, to, value)],
  ({ from, nonce }) => [log(GOLD, [USED, pad(from), nonce])],
  ({ from, to }) => [log(USDC, [APPROVAL, pad(from), pad(to)], toHex(1n, { size: 32 }))],
  ({ from, to, value }) => [moved(GOLD, from, to, value + 1n)],
  () => [log(SYSTEM, [])],
];

const logsOf = (one: Act): RpcLog[] => {
  const { kind, token, from, to, value, nonce, noise } = one;
  const between = at(NOISE, noise)(one);
  const transfer = moved(token, from, to, value);
  if (kind === "plain") return [...between, transfer];
  if (kind === "cancel") return [log(token, [CANCELED, pad(from), nonce]), ...between];
  return [log(token, [USED, pad(from), nonce]), ...between, transfer];
};

const keyOf = ({ token, from, nonce }: Pick<Act, "token" | "from" | "nonce">): string =>
  `${token} ${from} ${nonce}`;

/** A token ends each authorization once. */
function possible(acts: readonly Act[]): Act[] {
  const ended = new Set<string>();
  return acts.filter((one) => {
    if (one.kind === "plain") return true;
    const isNew = !ended.has(keyOf(one));
    ended.add(keyOf(one));
    return isNew;
  });
}

/** Every payment that could be expected in this small world. */
const EXPECTED: readonly CarriedItem[] = PAYERS.flatMap((from) =>
  NONCES.flatMap((nonce) =>
    PAYEES.flatMap((to) =>
      [1n, 2n].map((value) => ({
        asset: USDC,
        from,
        to,
        value,
        nonce,
        action: "transfer" as const,
      })),
    ),
  ),
);

function outcomeOf(
  acts: readonly Act[],
  { from, nonce, to, value }: CarriedItem,
): AuthorizationOutcome {
  const end = acts.find(
    (one) =>
      one.kind !== "plain" &&
      keyOf(one) === keyOf({ token: USDC, from: from as Address, nonce: nonce as Hex }),
  );
  if (!end) return "untouched";
  if (end.kind === "cancel") return "canceled";
  return end.to === to && end.value === value ? "paid" : "used_otherwise";
}

const receiptOf = (logs: RpcLog[]): RpcReceipt => ({
  transactionHash: HASH,
  blockNumber: "0x50",
  blockHash: `0x${"0b".repeat(32)}`,
  status: "0x1",
  gasUsed: "0x1",
  logs,
});

const acts = fc.array(act, { maxLength: 8, size: "max" }).map(possible);
const orderOf = (count: number, seeds: readonly number[]): number[] =>
  Array.from({ length: count }, (_, index) => index).sort(
    (one, other) => (seeds[one] ?? 0) - (seeds[other] ?? 0) || one - other,
  );

t.test("the token's own authorizations", async (t) => {
  const seen = { paid: 0, canceled: 0, used_otherwise: 0, untouched: 0 };
  fc.assert(
    fc.property(acts, fc.array(fc.nat(), { minLength: 8, maxLength: 8 }), (acts, seeds) => {
      const logs = acts.flatMap(logsOf);
      const turned = orderOf(acts.length, seeds).flatMap((index) => logsOf(at(acts, index)));
      const loud = logs.map((one) => ({
        ...one,
        address: one.address.toUpperCase().replace("0X", "0x") as Hex,
        topics: one.topics.map((topic, index) =>
          index === 0 ? topic : (topic.toUpperCase().replace("0X", "0x") as Hex),
        ),
      }));
      const forms = [logs, turned, [...logs, ...logs], loud];
      const elsewhere = logs.map((one) => (one.address === USDC ? { ...one, address: GOLD } : one));
      for (const item of EXPECTED) {
        const scheme = schemeOf(item);
        const expected = outcomeOf(acts, item);
        seen[expected] += 1;
        for (const [index, form] of forms.entries()) {
          const outcome = scheme.outcomeIn({ logs: form }, item);
          if (outcome !== expected) throw new Error(`form ${index}: ${outcome}, not ${expected}`);
        }
        if (scheme.outcomeIn({ logs: elsewhere }, item) !== "untouched")
          throw new Error("another token");
        if (scheme.outcomeIn({ logs: [] }, item) !== "untouched") throw new Error("reverted");
      }
    }),
    { numRuns: 400 },
  );
  for (const [outcome, count] of Object.entries(seen)) t.ok(count > 200, `${outcome}: ${count}`);
});

t.test("each payment of a batch is reported once, and no other", async () => {
  fc.assert(
    fc.property(
      acts,
      fc.uniqueArray(fc.nat({ max: 5 }), { minLength: 1, maxLength: 6 }),
      few,
      fc.boolean(),
      (acts, places, other, isFinal) => {
        // One expected payment of each authorization.
        const items = places.map((place) => at(EXPECTED, place * 4 + (other % 4)));
        const tx = { items, to: MULTICALL3_ADDRESS, calldata: "0x" as const };
        const found = provenBy(receiptOf(acts.flatMap(logsOf)), tx, isFinal);
        const reported = found.map(({ nonce, from, status }) => `${from} ${nonce} ${status}`);
        const expected = items.flatMap((item) => {
          const outcome = outcomeOf(acts, item);
          const releasedStatus = isFinal ? "failed" : "held";
          if (outcome !== "paid" && outcome !== "canceled") return [];
          return [`${item.from} ${item.nonce} ${outcome === "paid" ? "settled" : releasedStatus}`];
        });
        return (
          JSON.stringify(reported) === JSON.stringify(expected) &&
          found.every(
            ({ proof, isFinal: final }) =>
              final === isFinal && proof?.kind === "receipt" && proof.block === "80",
          )
        );
      },
    ),
    { numRuns: 1_500 },
  );
});

/** A payment through Permit2, and whether its call succeeded. */
interface Call {
  scheme: "exact-permit2" | "upto";
  from: Address;
  to: Address;
  token: Address;
  value: bigint;
  maximum: bigint;
  goesThrough: boolean;
  noise: number;
}
const call: fc.Arbitrary<Call> = fc
  .tuple(few, few, few, few, few, few, few)
  .map(([scheme, from, to, token, value, fails, noise]) => {
    const amount = BigInt(value % 3) + 1n;
    return {
      scheme: scheme === 0 ? "upto" : "exact-permit2",
      from: at(PAYERS, from),
      to: at(PAYEES, to),
      token: token === 0 ? GOLD : USDC,
      value: amount,
      maximum: scheme === 0 ? amount + BigInt(noise) : amount,
      goesThrough: fails > 1,
      noise,
    };
  });

const authorizationOf = (one: Call, index: number): SignedAuthorization => ({
  chainId: ARC.chainId,
  asset: one.token,
  from: one.from,
  to: one.to,
  value: one.value,
  validAfter: 7n,
  validBefore: 2n ** 40n,
  nonce: `permit2:${toHex(index + 1, { size: 32 })}`,
  terms:
    one.scheme === "upto"
      ? { scheme: "upto", maximum: String(one.maximum), facilitator: at(PAYEES, 0) }
      : { scheme: "exact-permit2" },
  signature: `0x${"11".repeat(64)}1b`,
});

const SETTLED = toEventSelector("Settled()");
const proxyOf = ({ scheme }: Call): Address =>
  (scheme === "upto" ? UPTO_PROXY : EXACT_PROXY).address;

/** Between the token's event and the proxy's there is no other transfer of the same token. */
const traceOf = (one: Call): RpcLog[] => {
  const between = one.noise === 1 ? [moved(SYSTEM, one.from, one.to, one.value)] : [];
  return one.goesThrough
    ? [moved(one.token, one.from, one.to, one.value), ...between, log(proxyOf(one), [SETTLED])]
    : between;
};

const batchOf = (calls: readonly { to: Address; data: Hex }[]): SentCall => ({
  to: MULTICALL3_ADDRESS,
  data: encodeFunctionData({
    abi: multicall3Abi,
    functionName: "aggregate3",
    args: [calls.map(({ to, data }) => ({ target: to, allowFailure: true, callData: data }))],
  }),
});
const callOf = (signed: SignedAuthorization): { to: Address; data: Hex } => {
  const [{ target, data }] = schemeOf(signed).planTransfer(signed).calls();
  return { to: target as Address, data };
};

const isAlike = (one: Call, other: Call): boolean =>
  one.token === other.token &&
  one.from === other.from &&
  one.to === other.to &&
  one.value === other.value;

t.test("payments whose nonce is in no log", async (t) => {
  const seen = { paid: 0, untouched: 0 };
  fc.assert(
    fc.property(
      fc.array(call, { minLength: 1, maxLength: 5, size: "max" }),
      fc.array(fc.nat(), { minLength: 5, maxLength: 5 }),
      fc.nat({ max: 3 }),
      (calls, seeds, odd) => {
        const signed = calls.map(authorizationOf);
        // Sometimes a third party's contract is called as well: then nothing is certain.
        const others = odd === 0 ? [{ to: SYSTEM, data: "0x12345678" as const }] : [];
        const sent = batchOf([...signed.map(callOf), ...others]);
        const logs = calls.flatMap(traceOf);
        const turned = orderOf(calls.length, seeds).flatMap((index) => traceOf(at(calls, index)));
        const unsent = { ...at(signed, 0), nonce: `permit2:${toHex(99, { size: 32 })}` as const };
        for (const [index, mine] of signed.entries()) {
          const own = at(calls, index);
          const scheme = schemeOf(mine);
          const isSound =
            own.goesThrough &&
            others.length === 0 &&
            // The proxy's event for another token, or another proxy's call, may be taken for the event of this payment.
            calls.every((one) => one.token === own.token && one.scheme === own.scheme) &&
            calls.filter((one) => isAlike(one, own)).length === 1;
          const fates = [logs, turned, [...logs, ...logs]].map((form) =>
            scheme.outcomeIn({ logs: form, sent }, mine),
          );
          const expected = isSound ? "paid" : "untouched";
          seen[expected] += 1;
          if (fates.some((outcome) => outcome !== expected))
            throw new Error(`${fates.join()} ${expected}`);
          const gone = logs.filter((_one, place) => place !== logs.length - 1);
          const isLast = index === calls.length - 1 && own.goesThrough;
          if (isLast && scheme.outcomeIn({ logs: gone, sent }, mine) === "paid")
            throw new Error("without the proxy's event");
          if (scheme.outcomeIn({ logs }, mine) !== "untouched") throw new Error("calls unknown");
          if (scheme.outcomeIn({ logs: [], sent }, mine) !== "untouched")
            throw new Error("reverted");
          const open = { ...mine, value: own.maximum };
          if (own.scheme === "upto" && expected === "paid" && own.maximum > own.value) {
            if (scheme.chargedIn?.({ logs, sent }, open) !== own.value) throw new Error("charged");
          }
        }
        if (schemeOf(unsent).outcomeIn({ logs, sent }, unsent) !== "untouched")
          throw new Error("another nonce's trace");
      },
    ),
    { numRuns: 400 },
  );
  for (const [outcome, count] of Object.entries(seen)) t.ok(count > 30, `${outcome}: ${count}`);
});

t.test("a response is a receipt only for its own transaction, in a mined block", async () => {
  const good = { ...receiptOf([]) };
  const anything = fc.oneof(
    fc.constantFrom<unknown>(undefined, null, "", "0x", `0x${"0".repeat(64)}`, "0xzz", [HASH]),
    fc.jsonValue({ maxDepth: 1 }),
  );
  fc.assert(
    fc.property(
      fc.constantFrom("transactionHash", "blockHash", "blockNumber", "logs"),
      anything,
      (name, value) => {
        // Any number is a valid block number, and any list a valid list of logs.
        const isFit =
          (name === "blockNumber" && typeof value === "string" && /^0x[0-9a-f]+$/.test(value)) ||
          (name === "logs" && Array.isArray(value));
        return isReceiptOf({ ...good, [name]: value }, HASH) === isFit;
      },
    ),
    { numRuns: 1_000 },
  );
  fc.assert(fc.property(anything, (value) => !isReceiptOf(value, HASH)));
  const loud = HASH.toUpperCase().replace("0X", "0x");
  if (!isReceiptOf(good, HASH) || !isReceiptOf(good, loud)) throw new Error("a good one");
});

t.test("a block's depth counts itself and later blocks, and is at least one", async () => {
  const block = fc.bigInt({ min: 0n, max: 10n ** 9n });
  fc.assert(
    fc.property(block, block, (head, number) => {
      const depth = depthOf(head, number);
      return head < number ? depth === 1 : BigInt(depth) + number === head + 1n;
    }),
    { numRuns: 1_000 },
  );
});

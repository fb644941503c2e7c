// Goal: our Permit2 encoding equals viem's, and only the payment itself counts as paid.
import { randomBytes } from "node:crypto";
import {
  permit2WitnessTypes,
  uptoPermit2WitnessTypes,
  x402ExactPermit2ProxyABI,
  x402UptoPermit2ProxyABI,
} from "@x402/evm";
import t from "tap";
import {
  bytesToHex,
  encodeFunctionData,
  hashTypedData,
  multicall3Abi,
  pad,
  parseSignature,
  toEventSelector,
  toFunctionSelector,
  toHex,
  type Abi,
  type Address,
  type Hex,
} from "viem";
import type { RpcLog } from "../../server/core/abi.ts";
import type { SignedAuthorization } from "../../server/core/authorization.ts";
import { BATCHER_ADDRESS, packTransfers } from "../../server/core/batcher.ts";
import { MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import { SentCalls } from "../../server/infra/chain/wallet-logs.ts";
import { paymentSchemeOf, schemeOf, useBehind } from "../../server/schemes/index.ts";
import type { SentCall, Shown } from "../../server/schemes/scheme.ts";
import {
  EXACT_PROXY,
  explainRevert,
  isEnded,
  nonceOf,
  PERMIT2,
  permitOf,
  UPTO_PROXY,
} from "../../server/schemes/permit2/onchain.ts";
import { ERC20_ABI, PERMIT2_ABI } from "../helpers/permit2.ts";
import { ARC } from "./payment-samples.ts";

const random = (bytes: number): Hex => toHex(randomBytes(bytes));
const LANE = random(20);
const SIGNATURE: Hex = `${random(64)}1b`;
const permit = { amount: "5000", deadline: "99", signature: `${random(64)}1c` as Hex };

const signed = (
  scheme: "exact-permit2" | "upto",
  over: Partial<SignedAuthorization> = {},
  more: { permit?: typeof permit } = {},
): SignedAuthorization => ({
  chainId: ARC.chainId,
  asset: ARC.usdc.address,
  from: random(20),
  to: random(20),
  value: 1_234n,
  validAfter: 7n,
  validBefore: 2n ** 40n,
  nonce: `permit2:${random(32)}`,
  terms:
    scheme === "upto"
      ? { scheme, maximum: "5000", facilitator: LANE, ...more }
      : { scheme, ...more },
  signature: SIGNATURE,
  ...over,
});

/** The same payment as viem's arguments. */
function viemArguments(authorization: SignedAuthorization) {
  const { asset, from, to, value, validAfter, validBefore, terms } = authorization;
  const isUpto = terms?.scheme === "upto";
  const permitted = { token: asset, amount: isUpto ? BigInt(terms.maximum) : value };
  const nonce = nonceOf(authorization);
  const deadline = validBefore - 1n;
  const witness = isUpto ? { to, facilitator: LANE, validAfter } : { to, validAfter };
  return { isUpto, permitted, nonce, deadline, witness, from, value };
}

t.test("digests and calls equal viem's", async (t) => {
  for (let index = 0; index < 40; index += 1) {
    const authorization = signed(
      index % 2 === 0 ? "exact-permit2" : "upto",
      { value: BigInt(random(4)), validAfter: BigInt(random(3)) },
      index % 4 < 2 ? {} : { permit },
    );
    const scheme = paymentSchemeOf(authorization);
    const { isUpto, permitted, nonce, deadline, witness, from, value } =
      viemArguments(authorization);
    const proxy = isUpto ? UPTO_PROXY : EXACT_PROXY;
    const message = { permitted, spender: proxy.address, nonce, deadline, witness };
    t.equal(
      bytesToHex(scheme.transferDigest(ARC, authorization)),
      hashTypedData({
        domain: { name: "Permit2", chainId: ARC.chainId, verifyingContract: PERMIT2 },
        types: isUpto ? uptoPermit2WitnessTypes : permit2WitnessTypes,
        primaryType: "PermitWitnessTransferFrom",
        message,
      }),
    );
    const { r, s } = parseSignature(permit.signature);
    const sponsored = permitOf(authorization.terms)
      ? [{ value: 5_000n, deadline: 99n, r, s, v: 28 }]
      : [];
    const charged = isUpto ? [value] : [];
    const abi: Abi = isUpto ? x402UptoPermit2ProxyABI : x402ExactPermit2ProxyABI;
    const plan = scheme.planTransfer(authorization);
    const { isPlainKey, sender } = plan;
    const calls = plan.calls();
    t.equal(
      calls[0].data,
      encodeFunctionData({
        abi,
        functionName: sponsored.length > 0 ? "settleWithPermit" : "settle",
        args: [...sponsored, { permitted, nonce, deadline }, ...charged, from, witness, SIGNATURE],
      }),
    );
    t.equal(calls[0].target, proxy.address.toLowerCase());
    t.ok(isPlainKey);
    t.equal(sender, isUpto ? LANE : undefined);
  }
});

t.test("a nonce is one bit of its owner's nonce bitmap", async (t) => {
  const at = (nonce: bigint) =>
    signed("exact-permit2", { nonce: `permit2:${toHex(nonce, { size: 32 })}` });
  const word = (value: bigint) => ({ success: true, data: toHex(value, { size: 32 }) });
  for (const nonce of [0n, 255n, 256n, 2n ** 256n - 1n]) {
    const bit = 1n << (nonce & 255n);
    t.equal(isEnded(at(nonce), word(bit)), true);
    t.equal(isEnded(at(nonce), word((2n ** 256n - 1n) ^ bit)), false);
    t.equal(isEnded(at(nonce), { success: false, data: "0x" }), undefined);
    t.equal(isEnded(at(nonce), { success: true, data: "0x" }), undefined);
  }
});

const log = (address: string, topics: Hex[], data: Hex = "0x"): RpcLog => ({
  address: address as Address,
  topics,
  data,
  transactionHash: "0x",
  blockNumber: "0x1",
  blockHash: "0x",
});
const moved = ({ asset, from, to, value }: SignedAuthorization): RpcLog =>
  log(
    asset,
    [toEventSelector("Transfer(address,address,uint256)"), pad(from), pad(to)],
    toHex(value, { size: 32 }),
  );
/** An EIP-3009 authorization of the token, sent through our batcher. */
function batcherOf(authorization: SignedAuthorization): SentCall {
  const { terms: _terms, ...plain } = authorization;
  const signature = `0x${"1b".repeat(65)}` as const;
  const calls = schemeOf(plain)
    .planTransfer({ ...plain, signature })
    .calls();
  return { to: BATCHER_ADDRESS, data: packTransfers(calls, 100_000n) ?? "0x" };
}
const settledBy = (proxy: string): RpcLog => log(proxy, [toEventSelector("Settled()")]);

for (const name of ["exact-permit2", "upto"] as const)
  t.test(`${name}: what a transaction proves`, async (t) => {
    const mine = signed(name);
    const { address } = name === "upto" ? UPTO_PROXY : EXACT_PROXY;
    const scheme = schemeOf(mine);
    const outcomeIn = (shown: Shown, expected: SignedAuthorization) =>
      scheme.outcomeIn(shown, expected);
    const callOf = (authorization: SignedAuthorization): SentCall => {
      const [{ target, data }] = schemeOf(authorization).planTransfer(authorization).calls();
      return { to: target, data };
    };
    const batch = (...calls: SentCall[]): SentCall => ({
      to: MULTICALL3_ADDRESS,
      data: encodeFunctionData({
        abi: multicall3Abi,
        functionName: "aggregate3",
        args: [
          calls.map(({ to, data }) => ({
            target: to as Address,
            allowFailure: true,
            callData: data,
          })),
        ],
      }),
    });
    const trace = [moved(mine), settledBy(address)];
    const sent = callOf(mine);
    const other = signed(name);
    const twin = { ...mine, nonce: signed(name).nonce };
    t.equal(outcomeIn({ logs: trace, sent }, mine), "paid");
    const between = log(mine.asset, [toEventSelector("Approval(address,address,uint256)")]);
    t.equal(
      outcomeIn({ logs: [moved(mine), between, settledBy(address)], sent }, mine),
      "paid",
      "another event of the token in between",
    );
    t.equal(
      outcomeIn(
        { logs: [moved(other), settledBy(address), ...trace], sent: batch(callOf(other), sent) },
        mine,
      ),
      "paid",
      "in a batch",
    );
    t.equal(outcomeIn({ logs: trace }, mine), "untouched", "its calls are not known");
    t.equal(outcomeIn({ logs: [], sent }, mine), "untouched", "reverted");
    t.equal(outcomeIn({ logs: [moved(mine)], sent }, mine), "untouched", "no event of the proxy");
    t.equal(outcomeIn({ logs: [settledBy(address)], sent }, mine), "untouched", "no transfer");
    t.equal(
      outcomeIn({ logs: [moved(mine), settledBy(random(20))], sent }, mine),
      "untouched",
      "another contract's event",
    );
    t.equal(
      outcomeIn(
        { logs: [{ ...moved(mine), address: random(20) }, settledBy(address)], sent },
        mine,
      ),
      "untouched",
      "another token",
    );
    t.equal(
      outcomeIn({ logs: [moved({ ...mine, value: 1n }), settledBy(address)], sent }, mine),
      "untouched",
      "another amount",
    );
    t.equal(outcomeIn({ logs: trace, sent: callOf(twin) }, mine), "untouched", "another nonce");
    t.equal(
      outcomeIn({ logs: trace, sent: batch(sent, callOf(twin)) }, mine),
      "untouched",
      "one of two with the same transfer: ambiguous",
    );
    t.equal(
      outcomeIn({ logs: trace, sent: batch(sent, { to: random(20), data: "0x" }) }, mine),
      "untouched",
      "a third party's contract in the same batch may have made the logs",
    );
    t.equal(
      outcomeIn({ logs: trace, sent: { to: random(20), data: sent.data } }, mine),
      "untouched",
      "the same bytes to another contract",
    );
    t.equal(
      outcomeIn({ logs: trace, sent: { ...sent, data: sent.data.slice(0, 300) as Hex } }, mine),
      "untouched",
    );
    t.equal(
      outcomeIn({ logs: trace, sent: { to: MULTICALL3_ADDRESS, data: "0x82ad56cb" } }, mine),
      "untouched",
    );

    const used = log(mine.asset, [
      toEventSelector("AuthorizationUsed(address,bytes32)"),
      pad(mine.from),
      random(32),
    ]);
    const byOwnSignature = [used, moved(mine), settledBy(address)];
    t.equal(
      outcomeIn({ logs: byOwnSignature, sent }, mine),
      "untouched",
      "the token's own authorization made that transfer",
    );
    const worthless = callOf(signed(name, { asset: random(20) }));
    const plain = { to: mine.asset, data: "0xe3ee160e" as Hex };
    t.equal(
      outcomeIn({ logs: trace, sent: batch(sent, plain, worthless) }, mine),
      "untouched",
      "the settlement of another token may have made the proxy's event",
    );
    t.equal(
      outcomeIn({ logs: trace, sent: batch(sent, { to: address, data: "0x12345678" }) }, mine),
      "untouched",
      "a call to the proxy that cannot be decoded",
    );
    const elsewhere = batch(sent);
    // The same bytes, but the offset of the list points elsewhere.
    const moving = elsewhere.data.slice(0, 10) + pad("0x40").slice(2) + elsewhere.data.slice(74);
    t.equal(
      outcomeIn({ logs: trace, sent: { ...elsewhere, data: moving as Hex } }, mine),
      "untouched",
      "a batch whose list is at another offset",
    );

    const unclear = (shown: Shown): boolean => (scheme.unreadIn?.(shown, mine) ?? []).length > 0;
    const thirdPartyCall = { to: random(20), data: sent.data };
    t.ok(unclear({ logs: trace, sent: thirdPartyCall }), "through a third party's contract");
    t.ok(
      unclear({ logs: trace, sent: batch(sent, callOf(twin)) }),
      "one of two with the same transfer",
    );
    t.ok(unclear({ logs: trace, sent: batch(callOf(twin), thirdPartyCall) }));
    t.notOk(unclear({ logs: trace, sent: callOf(twin) }), "the logs belong to another payment");
    t.notOk(unclear({ logs: [moved(mine)], sent: thirdPartyCall }), "no event of the proxy");
    t.notOk(
      unclear({ logs: byOwnSignature, sent: thirdPartyCall }),
      "paid by another authorization",
    );
    t.ok(unclear({ logs: trace, sent: batch(sent, plain, worthless) }));

    const token = batcherOf({ ...mine, nonce: random(32) });
    t.equal(
      outcomeIn({ logs: trace, sent: token }, mine),
      "untouched",
      "the token's own transfers",
    );
    t.ok(unclear({ logs: trace, sent: token }), "the code at its address is not known");
    t.notOk(unclear({ logs: [used, moved(mine)], sent: token }), "our batcher leaves no such logs");

    const partial = (call: SentCall, digits: number): SentCall => ({
      ...call,
      data: call.data.slice(0, -digits) as Hex,
    });
    const unreadable: [string, SentCall][] = [
      ["another contract with Multicall3's interface", { ...batch(sent), to: random(20) }],
      [
        "another call of Multicall3",
        { ...batch(sent), data: `0x12345678${batch(sent).data.slice(10)}` },
      ],
      ["a batch that breaks off", partial(batch(sent), 256)],
      ["a call that breaks off", partial(sent, sent.data.length - 300)],
      [
        "a call that breaks off after the payee",
        { ...sent, data: sent.data.slice(0, 10 + (name === "upto" ? 7 : 6) * 64) as Hex },
      ],
      ["a batch of nothing", { to: MULTICALL3_ADDRESS, data: "0x82ad56cb" }],
      ["an endless batch", { ...batch(sent), data: endless(batch(sent).data) }],
      ["a call that is no settlement", { to: address, data: `0x12345678${sent.data.slice(10)}` }],
    ];
    for (const [what, call] of unreadable) {
      t.equal(outcomeIn({ logs: trace, sent: call }, mine), "untouched", what);
      t.ok(unclear({ logs: trace, sent: call }), what);
    }
    t.ok(unclear({ logs: trace }), "its calls are not known");
    t.equal(
      outcomeIn({ logs: trace, sent: batch(sent, plain) }, mine),
      "paid",
      "beside another call to the token",
    );
    const sponsored = signed(name, {}, { permit });
    t.equal(
      outcomeIn(
        { logs: [moved(sponsored), settledBy(address)], sent: callOf(sponsored) },
        sponsored,
      ),
      "paid",
      "together with the token's permit",
    );

    // Another authorization of the same payer with the same nonce is another payment.
    const cheaper = { ...mine, value: 1n };
    const ofCheaper = [moved(cheaper), settledBy(address)];
    t.equal(outcomeIn({ logs: ofCheaper, sent: callOf(cheaper) }, mine), "untouched");
    const stranger = { ...mine, from: random(20) };
    t.equal(
      outcomeIn({ logs: trace, sent: batch(callOf(stranger), callOf(twin)) }, mine),
      "untouched",
      "another payer's call with this nonce, and this payer's with another",
    );
    const malformed = log(mine.asset, [toEventSelector("Transfer(address,address,uint256)")]);
    const halfMalformed = { ...malformed, topics: moved(mine).topics.slice(0, 2) };
    const usedByOther = log(mine.asset, [used.topics[0] as Hex, pad(other.from), random(32)]);
    for (const event of [malformed, halfMalformed])
      t.equal(
        outcomeIn({ logs: [usedByOther, event, settledBy(address)], sent }, mine),
        "untouched",
        "a transfer without its arguments",
      );
    t.same(scheme.endFilter(mine), {
      address: mine.asset,
      topics: [
        [toEventSelector("Transfer(address,address,uint256)")],
        pad(mine.from),
        pad(mine.to),
      ],
    });
    t.equal(scheme.isNamedInLogs, false);
    const loud = { ...mine, asset: mine.asset.toUpperCase().replace("0X", "0x") as Address };
    t.equal(scheme.traceOf(loud), scheme.traceOf(twin), "both would leave the same trace");
    for (const change of [
      { asset: random(20) },
      { from: random(20) },
      { to: random(20) },
      { value: 9n },
    ])
      t.not(scheme.traceOf({ ...mine, ...change }), scheme.traceOf(mine));

    const nonce = nonceOf(mine);
    const givenUp = (owner: string, mask: bigint): RpcLog =>
      log(
        PERMIT2,
        [toEventSelector("UnorderedNonceInvalidation(address,uint256,uint256)"), pad(owner as Hex)],
        `0x${toHex(nonce >> 8n, { size: 32 }).slice(2)}${toHex(mask, { size: 32 }).slice(2)}`,
      );
    const bit = 1n << (nonce & 255n);
    t.equal(outcomeIn({ logs: [givenUp(mine.from, bit)] }, mine), "canceled");
    t.equal(outcomeIn({ logs: [givenUp(mine.from, 2n ** 256n - 1n)] }, mine), "canceled");
    t.equal(outcomeIn({ logs: [givenUp(other.from, bit)] }, mine), "untouched", "another payer's");
    t.equal(outcomeIn({ logs: [givenUp(mine.from, bit ^ (2n ** 256n - 1n))] }, mine), "untouched");
    const good = givenUp(mine.from, bit);
    const otherWord = toHex((nonce >> 8n) ^ 1n, { size: 32 });
    const noCancellation: [string, RpcLog][] = [
      ["another contract's event", { ...good, address: random(20) }],
      ["another event", { ...good, topics: [random(32), pad(mine.from)] }],
      ["an event without its owner", { ...good, topics: good.topics.slice(0, 1) }],
      ["another word of the bitmap", { ...good, data: `${otherWord}${good.data.slice(66)}` }],
    ];
    for (const [what, event] of noCancellation)
      t.equal(outcomeIn({ logs: [event] }, mine), "untouched", what);
    t.same(scheme.stateCall(mine), {
      target: PERMIT2.toLowerCase(),
      data: encodeFunctionData({
        abi: PERMIT2_ABI,
        functionName: "nonceBitmap",
        args: [mine.from, nonce >> 8n],
      }),
    });
    t.same(paymentSchemeOf(mine).diagnosisCalls?.(mine), [
      { target: address, data: toFunctionSelector("PERMIT2()") },
      {
        target: mine.asset,
        data: encodeFunctionData({
          abi: ERC20_ABI,
          functionName: "allowance",
          args: [mine.from, PERMIT2],
        }),
      },
    ]);
    t.equal(scheme.planTransfer(mine).keyGas, 170_000n);
    t.equal(scheme.planTransfer(sponsored).keyGas, 240_000n, "the permit needs more");
  });

/** The same list, which claims to have far more entries than it has. */
const endless = (data: Hex): Hex =>
  `${data.slice(0, 74)}${"f".repeat(64)}${data.slice(138)}` as Hex;

t.test("an amount that is open until it is charged", async (t) => {
  const open = signed("upto", { value: 5_000n });
  const scheme = paymentSchemeOf(open);
  const charged = (value: bigint) => {
    const one = { ...open, value };
    const [{ target, data }] = scheme.planTransfer(one).calls();
    const logs = [moved(one), settledBy(UPTO_PROXY.address)];
    return { logs, sent: { to: target, data }, unread: { logs, sent: { to: random(20), data } } };
  };
  for (const value of [0n, 1n, 4_999n, 5_000n]) {
    const { logs, sent, unread } = charged(value);
    t.equal(scheme.outcomeIn({ logs, sent }, open), "paid");
    t.equal(scheme.chargedIn?.({ logs, sent }, open), value, `${value} was charged`);
    t.same(scheme.unreadIn?.(unread, open), [value]);
    t.equal(scheme.outcomeIn({ logs, sent }, { ...open, value: 777n }), "untouched");
    t.same(scheme.unreadIn?.(unread, { ...open, value: 777n }), [], "another charge than that");
  }
  const another = paymentSchemeOf(open).planTransfer({ ...open, nonce: signed("upto").nonce });
  const [{ target, data }] = another.calls();
  const { logs } = charged(5_000n);
  t.same(scheme.unreadIn?.({ logs, sent: { to: target, data } }, open), [], "another payment's");
  const exactly = charged(777n);
  t.same(scheme.unreadIn?.(exactly.unread, { ...open, value: 777n }), [777n]);
  const tooMuch = charged(5_001n);
  t.equal(scheme.outcomeIn(tooMuch, open), "untouched", "another authorization with this nonce");
  t.equal(scheme.chargedIn?.(tooMuch, open), undefined);
  t.same(scheme.unreadIn?.(tooMuch.unread, open), []);
  const exact = signed("exact-permit2");
  const less = { logs: [moved({ ...exact, value: 1n }), settledBy(EXACT_PROXY.address)] };
  t.same(paymentSchemeOf(exact).unreadIn?.(less, exact), [], "exact: the amount was signed");
  const twice = { logs: [moved(exact), settledBy(EXACT_PROXY.address)] };
  t.same(paymentSchemeOf(exact).unreadIn?.(twice, exact), [exact.value]);
});

t.test("a payment without terms has no permit", async (t) => {
  for (const terms of [undefined, null, { scheme: "exact-permit2" as const }])
    t.equal(permitOf(terms), undefined);
});

t.test("which authorization made a transfer that was found first", async (t) => {
  const callsOf = (...authorizations: SignedAuthorization[]) =>
    authorizations.map((one) => {
      const [{ target, data }] = paymentSchemeOf(one).planTransfer(one).calls();
      return { target: target as Address, allowFailure: true, callData: data };
    });
  const sentOf = (...authorizations: SignedAuthorization[]): SentCall => ({
    to: MULTICALL3_ADDRESS,
    data: encodeFunctionData({
      abi: multicall3Abi,
      functionName: "aggregate3",
      args: [callsOf(...authorizations)],
    }),
  });
  for (const name of ["exact-permit2", "upto"] as const) {
    const mine = signed(name);
    const { nonce, terms } = mine;
    t.same(useBehind(sentOf(mine), mine), { nonce, terms }, name);
    t.same(useBehind(sentOf(signed(name), mine), mine), { nonce, terms }, "in a batch");
    t.same(useBehind(sentOf(signed(name, {}, { permit }), mine), mine), { nonce, terms });
    t.equal(useBehind(sentOf(mine, { ...mine, nonce: signed(name).nonce }), mine), undefined);
    t.equal(useBehind(sentOf(signed(name)), mine), undefined, "another payment's calls");
    t.equal(useBehind(sentOf(mine, signed(name, { asset: random(20) })), mine), undefined);
    t.equal(useBehind({ to: random(20), data: "0x" }, mine), undefined);
  }
});

t.test("the calls of a transaction are requested once", async (t) => {
  const counts = { calls: 0, atOnce: 0, most: 0 };
  const call = async (): Promise<unknown> => {
    counts.calls += 1;
    counts.most = Math.max(counts.most, (counts.atOnce += 1));
    await new Promise((resolve) => setTimeout(resolve, 2));
    counts.atOnce -= 1;
    return { to: MULTICALL3_ADDRESS, input: "0x" };
  };
  const rpc = { call } as unknown as Parameters<SentCalls["read"]>[0];
  const hashes = new Set(Array.from({ length: 40 }, () => random(32)));
  const known = new SentCalls();
  for (let look = 0; look < 3; look += 1) t.equal((await known.read(rpc, hashes)).size, 40);
  t.equal(counts.calls, 40, "not again at every search");
  t.ok(counts.most > 1 && counts.most <= 8, `${counts.most} in parallel`);
});

t.test("what reverts mean", async (t) => {
  const of = (text: string | undefined) =>
    explainRevert(text, "invalid_exact_evm_transaction_failed");
  const custom = (error: string) => `custom error ${toFunctionSelector(error)}`;
  t.equal(custom("InvalidNonce()"), "custom error 0x756688fe");
  const otherwise = "invalid_exact_evm_transaction_failed";
  // [the revert, its reason, whether it depends on the block and not on the call]
  const cases: [string | undefined, string, boolean, RegExp][] = [
    [custom("InvalidNonce()"), "permit2_invalid_nonce", true, /nonce has been used/],
    [custom("SignatureExpired(uint256)"), "permit2_deadline_expired", true, /deadline has passed/],
    [custom("PaymentTooEarly()"), "permit2_payment_too_early", true, /not valid yet/],
    [custom("InvalidSigner()"), "invalid_permit2_signature", false, /rejects the signature/],
    [custom("InvalidSignature()"), "invalid_permit2_signature", false, /rejects the signature/],
    [custom("InvalidSignatureLength()"), "invalid_permit2_signature", false, /rejects/],
    [custom("InvalidContractSignature()"), "invalid_permit2_signature", false, /rejects/],
    [custom("InvalidAmount()"), "permit2_invalid_amount", false, /amount is zero/],
    [custom("InvalidDestination()"), "permit2_invalid_destination", false, /payee is the zero/],
    [custom("InvalidOwner()"), "permit2_invalid_owner", false, /payer is the zero/],
    [custom("Permit2612AmountMismatch()"), "permit2_2612_amount_mismatch", false, /permit differs/],
    [custom("AmountExceedsPermitted()"), "upto_amount_exceeds_permitted", false, /more than/],
    [custom("UnauthorizedFacilitator()"), "upto_unauthorized_facilitator", false, /different acc/],
    ["TRANSFER_FROM_FAILED", "permit2_simulation_failed", false, /token rejects the transfer/],
    ["anything else", otherwise, false, /^The transfer fails on chain.*\(anything else\)$/],
  ];
  for (const [text, reason, isOfState, message] of cases)
    t.match(of(text), { reason, isOfState, message }, text ?? "none");
  t.same(of(undefined), {
    reason: otherwise,
    isOfState: false,
    message: "The transfer fails on chain with its gas limit.",
  });
  t.match(of("x".repeat(999)).message, /limit\. \(x{200}\)$/);
  for (const name of ["exact-permit2", "upto"] as const)
    t.equal(
      paymentSchemeOf(signed(name)).explainRevert("x").reason,
      name === "upto" ? "invalid_upto_evm_transaction_failed" : otherwise,
    );
});

// Goal: the token's own authorizations are signed, sent, canceled and found on chain as the token defines them, and each scheme is found under its name.
import { randomBytes } from "node:crypto";
import t from "tap";
import {
  bytesToHex,
  encodeFunctionData,
  hashTypedData,
  pad,
  parseAbi,
  toEventSelector,
  toHex,
  type Address,
  type Hex,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { RpcLog } from "../../server/core/abi.ts";
import type { AuthorizationRef } from "../../server/core/authorization.ts";
import { transferDigest } from "../../server/schemes/exact-eip3009/onchain.ts";
import {
  ANNOUNCED_SCHEMES,
  findScheme,
  isMaximum,
  paymentSchemeOf,
  readPayment,
  SCHEMES,
  schemeOf,
  SPENDERS,
  TOKEN_SCHEME,
} from "../../server/schemes/index.ts";
import { PERMIT2 } from "../../server/schemes/permit2/onchain.ts";
import { transferOf } from "../helpers/eip3009.ts";
import { ARC, AUTHORIZATION, bodyOf, NONCE, PAYEE } from "./payment-samples.ts";

const key = privateKeyToAccount(generatePrivateKey());
const OTHER = toHex(randomBytes(20));
const USDC = ARC.usdc.address.toLowerCase() as Address;
const DOMAIN = {
  name: "USDC",
  version: "2",
  chainId: ARC.chainId,
  verifyingContract: ARC.usdc.address,
} as const;
const ABI = parseAbi([
  "function cancelAuthorization(address authorizer, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)",
  "function cancelAuthorization(address authorizer, bytes32 nonce, bytes signature)",
  "function authorizationState(address authorizer, bytes32 nonce) view returns (bool)",
]);
const { from, to } = AUTHORIZATION;

t.test("what our wallet signs is read as the same payment", async (t) => {
  const authorization = TOKEN_SCHEME.authorize({
    network: ARC,
    from: key.address.toLowerCase() as Address,
    payTo: PAYEE.toLowerCase() as Address,
    amountAtomic: 1_000n,
    validAfter: 7n,
    validBefore: 2_000n,
    nonce: NONCE,
    extra: {},
  });
  const digest = TOKEN_SCHEME.transferDigest(ARC, authorization);
  const signature = await key.sign({ hash: bytesToHex(digest) });
  const body = bodyOf();
  const proof = TOKEN_SCHEME.proofPayload({ ...authorization, signature });
  body.paymentPayload.payload = proof as (typeof body)["paymentPayload"]["payload"];
  t.equal(
    bytesToHex(digest),
    hashTypedData({ domain: DOMAIN, ...transferOf(body.paymentPayload.payload.authorization) }),
  );
  const read = readPayment(body, [ARC]);
  if (!read.isValid) throw new Error(read.message);
  t.same(read.payment.authorization, { ...authorization, asset: USDC });
  t.equal(read.payment.signature, signature);
  t.same(read.payment.scheme.examine(read.payment), {
    digest: bytesToHex(digest),
    ecdsa: signature,
  });
  const byOther = bodyOf();
  byOther.paymentPayload.payload = { ...body.paymentPayload.payload };
  byOther.paymentPayload.payload.signature = `0x${"11".repeat(64)}1b`;
  const wrong = readPayment(byOther, [ARC]);
  if (!wrong.isValid) throw new Error(wrong.message);
  t.equal(wrong.payment.scheme.examine(wrong.payment).ecdsa, undefined);
  t.throws(() => transferDigest(DOMAIN, { ...authorization, nonce: "0x12" }), /six words/);
});

t.test("a cancellation is signed and sent as the token defines it", async (t) => {
  const typed = {
    domain: DOMAIN,
    types: {
      CancelAuthorization: [
        { name: "authorizer", type: "address" },
        { name: "nonce", type: "bytes32" },
      ],
    },
    primaryType: "CancelAuthorization",
    message: { authorizer: key.address, nonce: NONCE },
  } as const;
  const digest = TOKEN_SCHEME.cancelDigest?.(ARC, key.address, NONCE);
  t.equal(digest && bytesToHex(digest), hashTypedData(typed));
  const signature = await key.signTypedData(typed);
  const call = (given: Hex) =>
    TOKEN_SCHEME.cancelCall?.({ asset: USDC, from: key.address, nonce: NONCE }, given);
  const [r, s] = [signature.slice(0, 66), `0x${signature.slice(66, 130)}`] as [Hex, Hex];
  const v = Number.parseInt(signature.slice(130), 16);
  const expected = (args: readonly unknown[]) => ({
    target: USDC,
    data: encodeFunctionData({
      abi: ABI,
      functionName: "cancelAuthorization",
      args: [key.address, NONCE, ...args] as never,
    }),
  });
  t.same(call(signature), expected([v, r, s]));
  for (const bytes of ["0x1234", `${signature}1b`, `${signature.slice(0, 130)}00`] as Hex[])
    t.same(call(bytes), expected([bytes]), "bytes that only a wallet understands");
});

t.test("its state on the chain", async (t) => {
  t.same(TOKEN_SCHEME.stateCall(AUTHORIZATION), {
    target: ARC.usdc.address,
    data: encodeFunctionData({ abi: ABI, functionName: "authorizationState", args: [from, NONCE] }),
  });
  const answer = (data: Hex, success = true) =>
    TOKEN_SCHEME.isEnded(AUTHORIZATION, { success, data });
  t.equal(answer(pad("0x00")), false);
  t.equal(answer(pad("0x01")), true);
  t.equal(answer(pad("0x01"), false), undefined);
  t.equal(answer("0x"), undefined);
});

const [USED, CANCELED, TRANSFER] = [
  "AuthorizationUsed(address,bytes32)",
  "AuthorizationCanceled(address,bytes32)",
  "Transfer(address,address,uint256)",
].map((event) => toEventSelector(event)) as [Hex, Hex, Hex];
const log = (topics: Hex[], data: Hex = "0x", address: Address = USDC): RpcLog => ({
  address,
  topics,
  data,
  transactionHash: "0x",
  blockNumber: "0x1",
  blockHash: "0x",
});
const moved = (sender: Address, payee: Address, value = 1_000n): RpcLog =>
  log([TRANSFER, pad(sender), pad(payee)], toHex(value, { size: 32 }));

t.test("what a transaction proves", async (t) => {
  const used = log([USED, pad(from), NONCE]);
  const paid = moved(from, to);
  const cases: [string, RpcLog[], string][] = [
    ["used, then the transfer", [used, paid], "paid"],
    ["the transfer of another payer comes first", [used, moved(OTHER, to), paid], "used_otherwise"],
    ["a transfer before it", [paid, used], "used_otherwise"],
    ["a transfer to another", [used, moved(from, OTHER)], "used_otherwise"],
    ["another amount", [used, moved(from, to, 999n)], "used_otherwise"],
    ["no transfer", [used], "used_otherwise"],
    ["a transfer without its arguments", [used, log([TRANSFER])], "used_otherwise"],
    ["a transfer without its payee", [used, log([TRANSFER, pad(from)])], "used_otherwise"],
    ["canceled", [log([CANCELED, pad(from), NONCE])], "canceled"],
    ["another's", [log([CANCELED, pad(OTHER), NONCE])], "untouched"],
    ["an event without arguments", [log([CANCELED]), log([USED])], "untouched"],
  ];
  for (const [what, logs, outcome] of cases)
    t.equal(TOKEN_SCHEME.outcomeIn({ logs }, AUTHORIZATION), outcome, what);
  const nonce = pad(to);
  t.equal(
    TOKEN_SCHEME.outcomeIn({ logs: [paid] }, { ...AUTHORIZATION, nonce }),
    "untouched",
    "a nonce that looks like the payee of a transfer",
  );
  const gold = { ...AUTHORIZATION, asset: OTHER };
  const logs = [used, paid];
  t.equal(TOKEN_SCHEME.outcomeIn({ logs }, gold), "untouched", "another token, in these logs");
  t.equal(TOKEN_SCHEME.outcomeIn({ logs }, AUTHORIZATION), "paid");
  t.same(TOKEN_SCHEME.endFilter(AUTHORIZATION), {
    address: ARC.usdc.address,
    topics: [[USED, CANCELED], pad(from), NONCE],
  });
  t.equal(TOKEN_SCHEME.isNamedInLogs, true);
  t.equal(TOKEN_SCHEME.traceOf(AUTHORIZATION), undefined, "the nonce tells them apart");
});

t.test("why the token refuses a transfer", async (t) => {
  const cases: [string | undefined, string, boolean, RegExp][] = [
    [
      "authorization is used or canceled",
      "invalid_exact_evm_nonce_already_used",
      true,
      /been used/,
    ],
    [
      "authorization is expired",
      "invalid_exact_evm_payload_authorization_valid_before",
      true,
      /past/,
    ],
    [
      "is not yet valid",
      "invalid_exact_evm_payload_authorization_valid_after",
      true,
      /not valid yet/,
    ],
    ["amount exceeds balance", "invalid_exact_evm_insufficient_balance", false, /balance/],
    ["ECRecover: invalid", "invalid_exact_evm_signature", false, /signature/],
    ["Blacklistable: blocked", "invalid_exact_evm_transaction_simulation_failed", false, /blocks/],
    ["Pausable: paused", "invalid_exact_evm_transaction_simulation_failed", false, /paused/],
    ["anything else", "invalid_exact_evm_transaction_failed", false, /limit\. \(anything else\)$/],
    [undefined, "invalid_exact_evm_transaction_failed", false, /with its gas limit\.$/],
    ["x".repeat(999), "invalid_exact_evm_transaction_failed", false, / \(x{200}\)$/],
  ];
  for (const [text, reason, isOfState, message] of cases)
    t.match(TOKEN_SCHEME.explainRevert(text), { reason, isOfState, message }, text ?? "no text");
});

t.test("each scheme under its name", async (t) => {
  const [token, permit2, upto] = SCHEMES;
  t.same(
    SCHEMES.map(({ name, transferMethod }) => `${name} ${transferMethod}`),
    ["exact eip3009", "exact permit2", "upto permit2"],
  );
  t.same(ANNOUNCED_SCHEMES, [token, upto], "one of each name");
  const cases: [unknown, unknown, "x402" | "mpp" | undefined, unknown][] = [
    ["exact", undefined, undefined, token],
    ["exact", { assetTransferMethod: "permit2" }, "x402", permit2],
    ["exact", { assetTransferMethod: "other" }, undefined, token],
    ["upto", {}, undefined, upto],
    ["other", {}, undefined, undefined],
    [undefined, {}, undefined, undefined],
    ["charge", undefined, "mpp", token],
    ["exact", undefined, "mpp", undefined],
    ["charge", undefined, "x402", undefined],
  ];
  for (const [name, extra, protocol, expected] of cases)
    t.equal(findScheme(name, extra, protocol), expected, JSON.stringify([name, extra, protocol]));
  for (const [name, expected] of [
    ["exact", false],
    ["upto", true],
    ["batch-settlement", true],
    ["other", false],
    [undefined, false],
  ] as const)
    t.equal(isMaximum({ scheme: name, extra: {} }), expected, String(name));
  const ref = (terms: AuthorizationRef["terms"]): AuthorizationRef => ({
    asset: USDC,
    from,
    nonce: NONCE,
    terms,
  });
  for (const terms of [undefined, null]) {
    t.equal(paymentSchemeOf(ref(terms)), token);
    t.equal(schemeOf(ref(terms)), token);
  }
  t.equal(schemeOf(ref({ scheme: "exact-permit2" })), permit2);
  t.equal(schemeOf(ref({ scheme: "upto", maximum: "1", facilitator: from })), upto);
  const allowance = ref({ scheme: "allowance", count: "0" });
  t.not(SCHEMES.includes(schemeOf(allowance) as never), true);
  t.throws(() => paymentSchemeOf(allowance), /allowance is no payment of a wallet/);
  t.same(SPENDERS, [PERMIT2]);
  t.same(
    SCHEMES.map(({ versions, spender }) => [versions, spender]),
    [
      [[1, 2], undefined],
      [[2], PERMIT2],
      [[2], PERMIT2],
    ],
  );
});

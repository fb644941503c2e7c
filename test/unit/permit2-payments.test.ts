// Goal: a payment over Permit2 is accepted exactly as its payer signed it and its seller requires it; any other is refused with the protocol's reason, in the protocol's order.
import { randomBytes } from "node:crypto";
import t from "tap";
import {
  encodeFunctionData,
  erc20Abi,
  keccak256,
  serializeErc6492Signature,
  serializeTransaction,
  toHex,
  type Address,
  type Hex,
  type TransactionSerializable,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { NetworkFacts } from "../../server/core/networks.ts";
import type { PaymentReads } from "../../server/plugins/facilitator/chain-reads.ts";
import { PaymentChecker } from "../../server/plugins/facilitator/verify.ts";
import { findScheme } from "../../server/schemes/index.ts";
import { EXACT_PROXY, PERMIT2, UPTO_PROXY } from "../../server/schemes/permit2/onchain.ts";
import { REASONS, type Diagnosis, type WantedPayment } from "../../server/schemes/scheme.ts";
import { ARC, BASE_SEPOLIA, PAYEE } from "./payment-samples.ts";

const key = privateKeyToAccount(generatePrivateKey());
const other = privateKeyToAccount(generatePrivateKey());
const LANE: Address = "0x00000000000000000000000000000000000000ae";
const NETWORK: NetworkFacts = { ...ARC, sendsApprovals: true };
const NOW = 1_000n;
const lower = (address: string) => address.toLowerCase() as Address;
const USDC = lower(ARC.usdc.address);

type Name = "exact" | "upto";
const NAMES: readonly Name[] = ["exact", "upto"];
const proxyOf = (name: Name) => (name === "exact" ? EXACT_PROXY : UPTO_PROXY);
function schemeOf(name: Name) {
  const scheme = findScheme(name, { assetTransferMethod: "permit2" });
  if (!scheme) throw new Error(name);
  return scheme;
}

type Fields = Record<string, unknown>;
interface Body {
  x402Version: unknown;
  paymentPayload: Fields;
  paymentRequirements: Fields;
}

interface Given extends Partial<WantedPayment> {
  /** What the seller requires, where it is not what was signed. */
  required?: string;
  signer?: typeof key;
  extensions?: Fields;
}

/** A payment as our wallet makes it, as a seller's server posts it. */
async function payment(name: Name, given: Given = {}): Promise<Body> {
  const scheme = schemeOf(name);
  const { required, signer = key, extensions = {}, ...wanted } = given;
  const extra = { ...scheme.requirementExtra(NETWORK), ...scheme.supportedExtra?.([LANE]) };
  const authorization = scheme.authorize({
    network: NETWORK,
    from: lower(key.address),
    payTo: lower(PAYEE),
    amountAtomic: 1_000n,
    validAfter: 0n,
    validBefore: 2_000n,
    nonce: toHex(randomBytes(32)),
    extra,
    ...wanted,
  });
  const signature = await signer.sign({
    hash: toHex(scheme.transferDigest(NETWORK, authorization)),
  });
  const requirements = {
    scheme: name,
    network: ARC.id as string,
    asset: ARC.usdc.address as string,
    amount: required ?? String(authorization.value),
    payTo: PAYEE as string,
    maxTimeoutSeconds: 60,
    extra,
  };
  return {
    x402Version: 2,
    paymentPayload: {
      x402Version: 2,
      accepted: { ...requirements },
      payload: scheme.proofPayload({ ...authorization, signature }),
      extensions,
    },
    paymentRequirements: requirements,
  };
}

/** A checker on a chain where everything succeeds, unless `over` replaces it. */
const checkerOn = (over: Partial<PaymentReads> = {}) =>
  new PaymentChecker({
    relayers: [other.address, LANE],
    networks: [NETWORK, BASE_SEPOLIA],
    reads: new Map([
      [
        ARC.chainId,
        {
          simulate: async () => true,
          simulateAlone: async () => ({ goesThrough: false, revert: undefined }),
          diagnose: async () => ({ used: false, balanceAtomic: 5_000n }),
          simulateAfter: async () => undefined,
          hasCode: async () => false,
          acceptsSignature: async () => false,
          ...over,
        },
      ],
    ]),
    factories: [],
    minPaymentAtomic: 0n,
    nowSeconds: () => NOW,
  });

async function check(
  body: unknown,
  purpose: "verify" | "settle" = "verify",
  over: Partial<PaymentReads> = {},
) {
  const checker = checkerOn(over);
  const read = checker.read(body, purpose);
  return read.isValid ? checker.checkPayment(read.payment) : read;
}
async function reasonOf(...args: Parameters<typeof check>): Promise<string> {
  const result = await check(...args);
  return result.isValid ? "valid" : result.reason;
}

/** The body with members replaced; undefined removes one. */
function altered(body: Body, changes: Readonly<Record<string, unknown>>): Body {
  const copy = structuredClone(body);
  for (const [path, value] of Object.entries(changes)) {
    const names = path.split(".");
    const last = names.pop() ?? "";
    let holder = copy as unknown as Fields;
    for (const name of names) holder = holder[name] as Fields;
    if (value === undefined) delete holder[last];
    else holder[last] = value;
  }
  return copy;
}
const PAYLOAD = "paymentPayload.payload";
const SIGNED = `${PAYLOAD}.permit2Authorization`;
const ACCEPTED = "paymentPayload.accepted";
const REQUIRED = "paymentRequirements";

for (const name of NAMES) {
  t.test(`${name}: what our wallet signs is read as the same payment`, async (t) => {
    const nonce = toHex(randomBytes(32));
    const body = await payment(name, { nonce, validAfter: 7n });
    const result = await check(body);
    if (!result.isValid) throw new Error(result.message);
    const { signature, ...authorization } = result.authorization;
    const terms =
      name === "exact"
        ? { scheme: "exact-permit2" }
        : { scheme: "upto", maximum: "1000", facilitator: LANE };
    t.same(authorization, {
      chainId: ARC.chainId,
      asset: USDC,
      from: lower(key.address),
      to: lower(PAYEE),
      value: 1_000n,
      validAfter: 7n,
      validBefore: 2_000n,
      nonce: `permit2:${nonce}`,
      terms,
    });
    t.equal(signature, (body.paymentPayload["payload"] as Fields)["signature"]);
    t.match(result.payment, {
      version: 2,
      networkName: ARC.id,
      payTo: lower(PAYEE),
      amountAtomic: 1_000n,
      payer: key.address,
    });
    t.equal(result.payerApproval, undefined);
    t.match((body.paymentPayload["payload"] as Fields)["permit2Authorization"], {
      from: key.address,
      permitted: { token: ARC.usdc.address, amount: "1000" },
      spender: proxyOf(name).address,
      nonce: String(BigInt(nonce)),
      deadline: "1999",
      witness: { to: PAYEE, validAfter: "7" },
    });
  });

  t.test(`${name}: each fault has its reason`, async (t) => {
    const isUpto = name === "upto";
    const good = await payment(name);
    const mismatch = isUpto
      ? "invalid_upto_evm_network_mismatch"
      : "invalid_exact_evm_network_mismatch";
    const ownScheme = isUpto ? "invalid_upto_evm_scheme" : "unsupported_payload_type";
    // The reference's guard for `upto` accepts only texts.
    const noText = isUpto ? "unsupported_payload_type" : "invalid_payload";
    const invalid = "invalid_payload";
    const cases: [Record<string, unknown>, string][] = [
      [{ [SIGNED]: "x" }, noText],
      [{ [SIGNED]: null }, noText],
      [{ [`${SIGNED}.permitted`]: null }, noText],
      [{ [`${SIGNED}.witness`]: null }, noText],
      [{ [`${PAYLOAD}.signature`]: 7 }, noText],
      ...["from", "spender", "permitted.token", "witness.to"].flatMap(
        (field): [Record<string, unknown>, string][] => [
          [{ [`${SIGNED}.${field}`]: "0x12" }, invalid],
          [{ [`${SIGNED}.${field}`]: 7 }, noText],
        ],
      ),
      ...["permitted.amount", "nonce", "deadline", "witness.validAfter"].flatMap(
        (field): [Record<string, unknown>, string][] => [
          [{ [`${SIGNED}.${field}`]: "1e3" }, invalid],
          [{ [`${SIGNED}.${field}`]: 1_000 }, noText],
        ],
      ),
      [{ [`${ACCEPTED}.scheme`]: "batch-settlement" }, ownScheme],
      [{ [`${ACCEPTED}.scheme`]: undefined }, ownScheme],
      [{ [`${ACCEPTED}.network`]: BASE_SEPOLIA.id }, mismatch],
      [{ [`${REQUIRED}.network`]: undefined, [`${ACCEPTED}.network`]: undefined }, mismatch],
      [
        { [`${REQUIRED}.network`]: "eip155:1", [`${ACCEPTED}.network`]: "eip155:1" },
        "invalid_network",
      ],
      [{ [`${REQUIRED}.asset`]: "0x12" }, invalid],
      [{ [`${REQUIRED}.payTo`]: "0x12" }, invalid],
      [{ [`${REQUIRED}.amount`]: "-1" }, invalid],
      [{ [`${REQUIRED}.amount`]: "0", [`${ACCEPTED}.amount`]: "0" }, invalid],
      [{ [`${SIGNED}.spender`]: LANE }, "invalid_permit2_spender"],
      [{ [`${SIGNED}.spender`]: PERMIT2 }, "invalid_permit2_spender"],
      [{ [`${SIGNED}.witness.to`]: LANE }, "invalid_permit2_recipient_mismatch"],
      [{ [`${ACCEPTED}.payTo`]: LANE }, "invalid_permit2_recipient_mismatch"],
      [{ [`${SIGNED}.deadline`]: "1005" }, "permit2_deadline_expired"],
      [{ [`${SIGNED}.witness.validAfter`]: "1001" }, "permit2_not_yet_valid"],
      [{ [`${SIGNED}.permitted.amount`]: "999" }, "permit2_amount_mismatch"],
      [{ [`${SIGNED}.permitted.amount`]: "1001" }, "permit2_amount_mismatch"],
      [{ [`${ACCEPTED}.amount`]: "999" }, "permit2_amount_mismatch"],
      [{ [`${SIGNED}.permitted.token`]: LANE }, "permit2_token_mismatch"],
      [{ [`${ACCEPTED}.asset`]: LANE }, "permit2_token_mismatch"],
      [{ [`${SIGNED}.from`]: other.address }, "invalid_permit2_signature"],
      // The protocol's order, one fault after the other.
      [{ [`${SIGNED}.spender`]: LANE, [`${SIGNED}.witness.to`]: LANE }, "invalid_permit2_spender"],
      [
        { [`${SIGNED}.witness.to`]: LANE, [`${SIGNED}.deadline`]: "5" },
        "invalid_permit2_recipient_mismatch",
      ],
      [
        { [`${SIGNED}.deadline`]: "5", [`${SIGNED}.permitted.amount`]: "9" },
        "permit2_deadline_expired",
      ],
      [
        { [`${SIGNED}.permitted.amount`]: "9", [`${SIGNED}.permitted.token`]: LANE },
        "permit2_amount_mismatch",
      ],
      // What may be omitted, and the last moments that are in time.
      [{ [`${ACCEPTED}.amount`]: undefined, [`${ACCEPTED}.payTo`]: undefined }, "valid"],
    ];
    for (const [changes, reason] of cases) {
      const result = await check(altered(good, changes));
      const found = result.isValid ? "valid" : result.reason;
      t.equal(found, reason, JSON.stringify(changes));
      const isReadable = !(SIGNED in changes) && !(`${SIGNED}.from` in changes);
      if (!result.isValid && isReadable && reason !== "unsupported_payload_type")
        t.equal(result.payer, key.address, `${JSON.stringify(changes)}: its payer is named`);
    }
    t.equal(await reasonOf(await payment(name, { validBefore: NOW + 7n })), "valid", "6 seconds");
    t.equal(await reasonOf(await payment(name, { validAfter: NOW })), "valid", "from this second");
    t.equal(await reasonOf(await payment(name, { signer: other })), "invalid_permit2_signature");
  });

  t.test(`${name}: an ordinary account's signature gets the form that Permit2 takes`, async (t) => {
    const good = await payment(name);
    const { signature } = good.paymentPayload["payload"] as { signature: Hex };
    const short = altered(good, {
      [`${PAYLOAD}.signature`]: `${signature.slice(0, 130)}0${signature.endsWith("1c") ? 1 : 0}`,
    });
    t.match(await check(short), { isValid: true, authorization: { signature } });
    for (const signature of ["no signature", "0x", `0x${"ab".repeat(65)}`])
      t.equal(
        await reasonOf(altered(good, { [`${PAYLOAD}.signature`]: signature })),
        "invalid_permit2_signature",
        signature,
      );
    const inEnvelope = serializeErc6492Signature({ address: LANE, data: "0x12", signature });
    t.match(await check(altered(good, { [`${PAYLOAD}.signature`]: inEnvelope })), {
      isValid: true,
      payment: { signature },
      authorization: { signature },
    });
    const wallet = { hasCode: async () => true, acceptsSignature: async () => true };
    const accepted = {
      ...wallet,
      simulateAlone: async () => ({ goesThrough: true, revert: undefined }),
    };
    const byWallet = altered(good, { [`${PAYLOAD}.signature`]: "0x1234" });
    t.match(await check(byWallet, "verify", accepted), {
      isValid: true,
      authorization: { signature: "0x1234" },
    });
    t.equal(
      await reasonOf(byWallet, "verify", { hasCode: async () => true }),
      "invalid_permit2_signature",
    );
  });

  t.test(`${name}: why it would fail`, async (t) => {
    const body = await payment(name);
    const word = (value: bigint) => ({ success: true, data: toHex(value, { size: 32 }) });
    const deployed = word(BigInt(PERMIT2));
    const cases: [Partial<Diagnosis>, string | undefined, string, RegExp | string][] = [
      [{ reads: undefined }, undefined, "permit2_proxy_not_deployed", /./],
      [
        { reads: [{ success: false, data: "0x" }, word(9_999n)] },
        undefined,
        "permit2_proxy_not_deployed",
        /./,
      ],
      [
        { balanceAtomic: 999n, reads: [deployed, word(0n)] },
        undefined,
        "permit2_insufficient_balance",
        /./,
      ],
      [
        { balanceAtomic: 1_000n, reads: [deployed, word(999n)] },
        undefined,
        "permit2_allowance_required",
        /./,
      ],
      [
        { balanceAtomic: undefined, reads: [deployed, { success: false, data: "0x" }] },
        undefined,
        "permit2_simulation_failed",
        REASONS.permit2_simulation_failed,
      ],
      [
        { reads: [deployed, word(1_000n)], used: true },
        "x",
        "permit2_simulation_failed",
        /nonce has been used/,
      ],
      [
        { reads: [deployed, word(1_000n)] },
        "TRANSFER_FROM_FAILED",
        "permit2_simulation_failed",
        /token rejects the transfer/,
      ],
    ];
    for (const [found, revert, reason, message] of cases) {
      const result = await check(body, "verify", {
        simulate: async () => false,
        simulateAlone: async () => ({ goesThrough: false, revert }),
        diagnose: async () => ({ used: false, balanceAtomic: 5_000n, ...found }),
      });
      t.match(
        result,
        { isValid: false, reason, message, payer: key.address },
        JSON.stringify(reason),
      );
    }
  });

  t.test(`${name}: only through the contracts that a wallet signs for`, async (t) => {
    const scheme = schemeOf(name);
    const extra = { facilitatorAddress: LANE, assetTransferMethod: "permit2" };
    const why = (more: Fields) => scheme.whyNotPayable({ ...extra, ...more }, ARC);
    t.equal(why({}), undefined);
    t.equal(why({ assetTransferMethod: undefined }), undefined);
    t.match(why({ assetTransferMethod: "eip3009" }), /transfer method "eip3009"/);
    for (const field of ["spender", "proxy", "proxyAddress", "permit2Proxy"]) {
      t.equal(why({ [field]: proxyOf(name).address }), undefined);
      t.equal(why({ [field]: lower(proxyOf(name).address) }), undefined);
      for (const value of [PERMIT2, LANE, "x", null])
        t.match(why({ [field]: value }), new RegExp(`${field} .* is not the contract`));
    }
    for (const field of ["permit2", "permit2Address", "verifyingContract"]) {
      t.equal(why({ [field]: PERMIT2 }), undefined);
      t.match(
        why({ [field]: proxyOf(name).address }),
        new RegExp(`${field} .* is not the contract`),
      );
    }
  });
}

t.test("version 1 has no payments over Permit2", async (t) => {
  const body = await payment("exact");
  const { accepted, ...rest } = body.paymentPayload;
  const v1 = {
    x402Version: 1,
    paymentPayload: { ...(accepted as Fields), ...rest, x402Version: 1, network: "base-sepolia" },
    paymentRequirements: { ...body.paymentRequirements, network: "base-sepolia" },
  };
  t.equal(await reasonOf(v1), "unsupported_payload_type");
});

t.test(
  "a network that only another facilitator serves is named before anything else",
  async (t) => {
    const elsewhere = { [`${REQUIRED}.network`]: "eip155:1", [`${ACCEPTED}.network`]: "eip155:1" };
    const body = altered(await payment("upto"), { ...elsewhere, [`${SIGNED}.permitted`]: null });
    t.match(await check(body), { reason: "invalid_network", payer: key.address });
    const half = altered(await payment("upto"), { [`${REQUIRED}.network`]: "eip155:1" });
    t.equal(await reasonOf(half), "invalid_upto_evm_network_mismatch");
  },
);

t.test("upto: who may charge, and how much", async (t) => {
  const good = await payment("upto");
  const charge = (amount: string) => altered(good, { [`${REQUIRED}.amount`]: amount });
  const read = async (body: Body, purpose: "verify" | "settle") => {
    const result = await check(body, purpose);
    return result.isValid ? String(result.authorization.value) : result.reason;
  };
  t.equal(
    await read(charge("400"), "verify"),
    "permit2_amount_mismatch",
    "verify asks the maximum",
  );
  t.equal(await read(charge("400"), "settle"), "400", "settle charges what was used");
  t.equal(await read(charge("1000"), "settle"), "1000");
  t.equal(
    await read(charge("1001"), "settle"),
    "invalid_upto_evm_payload_settlement_exceeds_amount",
  );
  t.equal(await read(charge("0"), "settle"), "1000", "nothing used: the maximum is checked");
  t.equal(await read(charge("0"), "verify"), "invalid_payload");
  const charged = await check(charge("400"), "settle");
  t.match(charged, {
    authorization: { terms: { scheme: "upto", maximum: "1000", facilitator: LANE } },
  });
  const facilitator = `${SIGNED}.witness.facilitator`;
  const cases: [unknown, string][] = [
    [PAYEE, "upto_facilitator_mismatch"],
    ["0x12", "invalid_payload"],
    [undefined, "unsupported_payload_type"],
  ];
  for (const [value, reason] of cases)
    t.equal(await reasonOf(altered(good, { [facilitator]: value })), reason, String(value));
  const elsewhere = { [facilitator]: PAYEE };
  t.equal(
    await reasonOf(altered(good, { ...elsewhere, [`${SIGNED}.witness.to`]: LANE })),
    "invalid_permit2_recipient_mismatch",
    "the payee comes first",
  );
  t.equal(
    await reasonOf(altered(good, { ...elsewhere, [`${SIGNED}.deadline`]: "5" })),
    "upto_facilitator_mismatch",
    "before the time",
  );
  const checksummed = await payment("upto", { extra: { facilitatorAddress: other.address } });
  t.equal(await reasonOf(checksummed), "valid", "any of our accounts, in any case");
});

t.test("upto: the seller names the account that charges", async (t) => {
  const scheme = schemeOf("upto");
  const why = (facilitatorAddress: unknown) => scheme.whyNotPayable({ facilitatorAddress }, ARC);
  t.equal(why(LANE), undefined);
  t.match(why("0xcA11bde05977b3631167028862bE2a173976CA11"), /anyone can use/);
  t.match(why(undefined), /facilitatorAddress "undefined" must be/);
  t.match(why(`0x${"0".repeat(40)}`), /zero address/);
  await t.rejects(payment("upto", { extra: {} }), { message: /facilitatorAddress/ });
  const authorization = scheme.authorize({
    network: ARC,
    from: LANE,
    payTo: LANE,
    amountAtomic: 5n,
    validAfter: 0n,
    validBefore: 9n,
    nonce: "0x01",
    extra: { facilitatorAddress: LANE },
  });
  t.equal(scheme.mostOf?.({ ...authorization, value: 2n }), 5n, "the maximum is what may move");
  for (const terms of [{ scheme: "exact-permit2" } as const, undefined])
    t.throws(() => scheme.mostOf?.({ ...authorization, terms }), /not an authorization of upto/);
  t.equal(scheme.isMetered, true);
  t.same(
    new Set(
      Array.from(
        { length: 200 },
        () => scheme.supportedExtra?.([LANE, PAYEE])?.["facilitatorAddress"],
      ),
    ),
    new Set([LANE, PAYEE]),
    "spread over our accounts",
  );
  t.equal(scheme.supportedExtra?.([]), undefined);
});

const PERMIT_INFO = {
  from: key.address,
  asset: ARC.usdc.address,
  spender: PERMIT2,
  amount: "1000",
  nonce: "0",
  deadline: "2000",
  signature: `0x${"AB".repeat(64)}1C`,
  version: "1",
};
const sponsored = async (info: Fields, name: Name = "exact") =>
  payment(name, { extensions: { eip2612GasSponsoring: { info: { ...PERMIT_INFO, ...info } } } });

t.test("a token permit that comes with the payment", async (t) => {
  for (const name of NAMES)
    t.match(await check(await sponsored({}, name)), {
      isValid: true,
      authorization: {
        terms: {
          permit: { amount: "1000", deadline: "2000", signature: `0x${"ab".repeat(64)}1c` },
        },
      },
    });
  const malformed = "invalid_eip2612_extension_format";
  const cases: [Fields, string][] = [
    ...["from", "asset", "spender", "amount", "nonce", "deadline", "signature", "version"].flatMap(
      (field): [Fields, string][] => [
        [{ [field]: "x" }, malformed],
        [{ [field]: 7 }, malformed],
      ],
    ),
    [{ version: "1.0.2" }, "valid"],
    [{ amount: String(2n ** 256n) }, malformed],
    [{ signature: `0x${"ab".repeat(66)}` }, malformed],
    [{ from: other.address }, "eip2612_from_mismatch"],
    [{ asset: LANE }, "eip2612_asset_mismatch"],
    [{ spender: EXACT_PROXY.address }, "eip2612_spender_not_permit2"],
    [{ deadline: "1005" }, "eip2612_deadline_expired"],
    [{ deadline: "1006" }, "valid"],
    [{ from: other.address, asset: LANE }, "eip2612_from_mismatch"],
    [{ asset: LANE, spender: LANE }, "eip2612_asset_mismatch"],
    [{ spender: LANE, deadline: "5" }, "eip2612_spender_not_permit2"],
  ];
  for (const [info, reason] of cases) {
    const result = await check(await sponsored(info));
    const found = result.isValid ? "valid" : result.reason;
    t.equal(found, reason, JSON.stringify(info));
    if (!result.isValid) t.equal(result.payer, key.address);
  }
  const announced: unknown[] = [
    { info: { ...PERMIT_INFO, signature: undefined } },
    { info: "x" },
    "x",
  ];
  for (const extension of announced) {
    const body = await payment("exact", { extensions: { eip2612GasSponsoring: extension } });
    const result = await check(body);
    t.match(result, { isValid: true }, JSON.stringify(extension));
    if (result.isValid)
      t.notOk("permit" in (result.authorization.terms ?? {}), "the client did not sign");
  }
  const read = checkerOn().read(await sponsored({ deadline: "5" }), "settle");
  if (!read.isValid) throw new Error(read.message);
  const { payment: known } = read;
  t.equal(known.scheme.checkTerms(known, undefined), undefined, "accepted in time: without a time");
  const late = checkerOn().read(await payment("exact", { validBefore: 5n }), "settle");
  if (!late.isValid) throw new Error(late.message);
  const { scheme } = late.payment;
  t.match(scheme.checkFirst?.(late.payment, NOW), { reason: "permit2_deadline_expired" });
  t.equal(scheme.checkFirst?.(late.payment, undefined), undefined);
});

t.test("extensions that a network supports", async (t) => {
  const scheme = schemeOf("exact");
  t.same(scheme.supportedExtensions?.({ ...ARC, sendsApprovals: false }), ["eip2612GasSponsoring"]);
  t.same(scheme.supportedExtensions?.(NETWORK), [
    "eip2612GasSponsoring",
    "erc20ApprovalGasSponsoring",
  ]);
});

const approveData = (spender: Address = PERMIT2, amount = 1_000n): Hex =>
  encodeFunctionData({ abi: erc20Abi, functionName: "approve", args: [spender, amount] });
const PLAIN = {
  type: "eip1559",
  chainId: ARC.chainId,
  to: ARC.usdc.address,
  data: approveData(),
  nonce: 3,
  gas: 70_000n,
  maxFeePerGas: 10n,
  maxPriorityFeePerGas: 1n,
} as const satisfies TransactionSerializable;
type Changed = Partial<Omit<TransactionSerializable, "type">> & Fields;
const rawOf = async (changed: Changed = {}, signer = key): Promise<Hex> =>
  signer.signTransaction({ ...PLAIN, ...changed } as TransactionSerializable);
const infoOf = (signedTransaction: string) => ({
  from: key.address,
  asset: ARC.usdc.address,
  spender: PERMIT2,
  amount: "1000",
  signedTransaction,
  version: "1",
});
const approved = async (info: Fields, more: Fields = {}) =>
  payment("exact", { extensions: { erc20ApprovalGasSponsoring: { info }, ...more } });
/** A payer whose allowance is missing. */
const UNPREPARED: Partial<PaymentReads> = {
  simulate: async () => false,
  diagnose: async () => ({
    used: false,
    balanceAtomic: 5_000n,
    reads: [1n, 0n].map((value) => ({ success: true, data: toHex(value, { size: 32 }) })),
  }),
};

t.test("the payer's own approval that comes with the payment", async (t) => {
  const legacy = {
    type: "legacy",
    maxFeePerGas: undefined,
    maxPriorityFeePerGas: undefined,
    gasPrice: 7n,
  };
  const listed = { ...legacy, type: "eip2930" };
  for (const [changed, maxFeeWei] of [
    [{}, 10n],
    [{ nonce: 0, data: approveData(PERMIT2, 2n ** 256n - 1n) }, 10n],
    [{ gas: 200_000n }, 10n],
    [legacy, 7n],
    [listed, 7n],
  ] as [Changed, bigint][]) {
    const raw = await rawOf(changed);
    const result = await check(
      await approved(infoOf(raw.toUpperCase().replace("0X", "0x"))),
      "verify",
      UNPREPARED,
    );
    t.match(result, {
      isValid: true,
      payerApproval: {
        raw,
        from: lower(key.address),
        call: { target: USDC, data: changed["data"] ?? approveData() },
        nonce: BigInt(changed["nonce"] ?? 3),
        gas: changed["gas"] ?? 70_000n,
        maxFeeWei,
      },
    });
  }
  t.equal(
    await reasonOf(await payment("exact"), "verify", UNPREPARED),
    "permit2_allowance_required",
  );
});

t.test("an approval that is not for this payment, or not signed by its payer", async (t) => {
  const raw = await rawOf();
  const malformed = "invalid_erc20_approval_extension_format";
  const unparsed = "erc20_approval_tx_parse_failed";
  const forms: [Fields, string][] = [
    ...["from", "asset", "spender", "amount", "signedTransaction", "version"].flatMap(
      (field): [Fields, string][] => [
        [{ [field]: "x" }, malformed],
        [{ [field]: 7 }, malformed],
      ],
    ),
    [{ version: "1.2" }, "valid"],
    [{ from: other.address }, "erc20_approval_from_mismatch"],
    [{ asset: LANE }, "erc20_approval_asset_mismatch"],
    [{ spender: LANE }, "erc20_approval_spender_not_permit2"],
    [{ from: other.address, asset: LANE }, "erc20_approval_from_mismatch"],
    [{ asset: LANE, spender: LANE }, "erc20_approval_asset_mismatch"],
    [{ spender: LANE, signedTransaction: "0x02" }, "erc20_approval_spender_not_permit2"],
    [{ signedTransaction: "0x02" }, unparsed],
    [{ signedTransaction: raw.slice(0, -2) }, unparsed],
    [{ signedTransaction: serializeTransaction(PLAIN) }, "erc20_approval_tx_invalid_signature"],
  ];
  for (const [info, reason] of forms) {
    const result = await check(await approved({ ...infoOf(raw), ...info }));
    t.equal(result.isValid ? "valid" : result.reason, reason, JSON.stringify(info).slice(0, 80));
    if (!result.isValid) t.equal(result.payer, key.address);
  }
  const failed = "erc20_approval_tx_failed";
  const cases: [string, Changed, string, RegExp][] = [
    ["another contract", { to: LANE }, "erc20_approval_tx_wrong_target", /./],
    ["a new contract", { to: undefined }, "erc20_approval_tx_wrong_target", /./],
    ["no call", { data: undefined }, "erc20_approval_tx_wrong_selector", /./],
    [
      "another call",
      { data: `0xa9059cbb${approveData().slice(10)}` },
      "erc20_approval_tx_wrong_selector",
      /./,
    ],
    [
      "half a call",
      { data: approveData().slice(0, 136) as Hex },
      "erc20_approval_tx_invalid_calldata",
      /./,
    ],
    ["another spender", { data: approveData(LANE) }, "erc20_approval_tx_wrong_spender", /./],
    ["another chain", { chainId: 1 }, failed, /different chain/],
    ["coins", { value: 1n }, failed, /sends value/],
    ["a tail", { data: `${approveData()}00` }, failed, /additional data/],
    [
      "an access list",
      { accessList: [{ address: LANE, storageKeys: [] }] },
      failed,
      /additional data/,
    ],
    ["too little", { data: approveData(PERMIT2, 999n) }, failed, /below the payment/],
    ["much gas", { gas: 200_001n }, failed, /more than 200000 gas/],
  ];
  for (const [what, changed, reason, message] of cases)
    t.match(
      await check(await approved(infoOf(await rawOf(changed)))),
      { reason, message, payer: key.address },
      what,
    );
  t.equal(
    await reasonOf(await approved(infoOf(await rawOf({}, other)))),
    "erc20_approval_tx_signer_mismatch",
  );
  const blob = serializeTransaction(
    {
      ...PLAIN,
      type: "eip7702",
      authorizationList: [],
    },
    { ...(await signatureOf({ ...PLAIN, type: "eip7702", authorizationList: [] })) },
  );
  t.match(await check(await approved(infoOf(blob))), {
    reason: failed,
    message: /ordinary transaction/,
  });
  // A signature's numbers are a byte shorter now and then; then the last byte of the data is another one.
  const padded = async (digits: number): Promise<Hex> => {
    const bytes = (digits - (await rawOf({ data: approveData() })).length) / 2 - 4;
    for (let tail = 0; tail < 256; tail += 1) {
      const end = tail.toString(16).padStart(2, "0");
      for (const more of [0, 1, 2]) {
        const raw = await rawOf({ data: `${approveData()}${"00".repeat(bytes + more)}${end}` });
        if (raw.length === digits) return raw;
      }
    }
    throw new Error(`no transaction of ${digits} digits`);
  };
  for (const [digits, reason] of [
    [2_000, failed],
    [2_002, unparsed],
  ] as const)
    t.equal(
      await reasonOf(await approved(infoOf(await padded(digits)))),
      reason,
      `${digits} digits`,
    );
  const wrong = checkerOn().read(await approved(infoOf(await rawOf({ to: LANE }))), "verify");
  if (!wrong.isValid) throw new Error(wrong.message);
  t.equal(wrong.payment.scheme.payerApproval?.(wrong.payment), undefined);
});

/** The signature of a transaction whose form the account's own serializer does not know. */
async function signatureOf(transaction: object): Promise<{ r: Hex; s: Hex; yParity: number }> {
  const hash = keccak256(serializeTransaction(transaction as TransactionSerializable));
  const signature = await key.sign({ hash });
  return {
    r: signature.slice(0, 66) as Hex,
    s: `0x${signature.slice(66, 130)}`,
    yParity: signature.endsWith("1c") ? 1 : 0,
  };
}

t.test("where an approval is not used", async (t) => {
  const info = infoOf(await rawOf({ to: LANE }));
  t.equal(await reasonOf(await approved(info)), "erc20_approval_tx_wrong_target");
  const permitToo = { eip2612GasSponsoring: { info: PERMIT_INFO } };
  t.equal(await reasonOf(await approved(info, permitToo)), "valid", "a permit comes first");
  for (const missing of ["from", "signedTransaction", "version"])
    t.equal(await reasonOf(await approved({ ...info, [missing]: undefined })), "valid", missing);
  const quiet = new PaymentChecker({
    relayers: [],
    networks: [{ ...NETWORK, sendsApprovals: false }],
    reads: new Map([[ARC.chainId, { simulate: async () => true } as unknown as PaymentReads]]),
    factories: [],
    minPaymentAtomic: 0n,
    nowSeconds: () => NOW,
  });
  t.match(
    await quiet.check(await approved(info)),
    { isValid: true },
    "a network without approvals",
  );
});

// Goal: whatever is posted for a payment channel is read as it was meant, or refused with the code and field at fault.
import t, { type Test } from "tap";
import { serializeErc6492Signature, zeroAddress, type Hex } from "viem";
import {
  channelIdOf,
  isForChannels,
  readDeposit,
  readOrder,
  readVoucher,
  type DepositPayment,
} from "../../server/schemes/batch-settlement/index.ts";
import { PERMIT2 as PERMIT2_ADDRESS } from "../../server/schemes/permit2/onchain.ts";
import { change } from "../facilitator/bent-payments.ts";
import {
  account,
  channelOf,
  claimBody,
  depositBody,
  permit2Body,
  refundBody,
  settleBody,
  voucherBody,
} from "../facilitator/channel-bodies.ts";
import type { Body } from "../facilitator/payments.ts";
import type { TestChain } from "../helpers/chain.ts";
import { ARC } from "./payment-samples.ts";

const chain = { chainId: ARC.chainId, usdc: ARC.usdc.address } as TestChain;
const channel = channelOf(chain, { voucherKey: account() });
const OTHER = account().address;
const NOW = BigInt(Math.floor(Date.now() / 1_000));
const UINT128 = (2n ** 128n).toString();
const OK = "read";

/** The code without its prefix; for what cannot be read, the message. */
const said = ({ reason, message }: { reason: string; message: string }): string =>
  reason === "invalid_payload" ? message : reason.replace("invalid_batch_settlement_evm_", "");

function payersVerdict(body: Body): string {
  const voucher = readVoucher(body, [ARC]);
  if ("reason" in voucher) return said(voucher);
  if (voucher.type !== "deposit") return OK;
  const deposit = readDeposit(voucher);
  if ("reason" in deposit) return said(deposit);
  const { scheme } = deposit;
  const refusal = scheme.checkFirst?.(deposit, NOW) ?? scheme.checkTerms(deposit, NOW);
  if (refusal) return said(refusal);
  const isSigned = scheme.examine(deposit).ecdsa !== undefined;
  return isSigned ? OK : said({ reason: scheme.reasonSignature, message: "" });
}

function receiversVerdict(body: Body): string {
  const order = readOrder(body, [ARC]);
  return "reason" in order ? said(order) : OK;
}

type Case = readonly [path: string, value: unknown, verdict: string | RegExp];
const PAYLOAD = "paymentPayload.payload";
const TERMS = "paymentRequirements";

/** Of everything that a payer posts. */
const ALWAYS: Case[] = [
  [`${TERMS}.amount`, "1", OK],
  ["paymentPayload.accepted.scheme", "exact", "scheme"],
  ["paymentPayload.accepted.network", "eip155:1", "network_mismatch"],
  [`${PAYLOAD}.type`, "claim", "payload_type"],
  [`${TERMS}.amount`, "x", /paymentRequirements\.amount must be/],
  [`${TERMS}.payTo`, "0x12", /paymentRequirements\.payTo/],
  [`${PAYLOAD}.channelConfig`, [], /channelConfig must be an object/],
  [`${PAYLOAD}.channelConfig.payer`, zeroAddress, /channelConfig\.payer is the zero address/],
  [`${PAYLOAD}.channelConfig.payerAuthorizer`, "0x12", /channelConfig\.payerAuthorizer must be/],
  [`${PAYLOAD}.channelConfig.payerAuthorizer`, zeroAddress, "channel_id_mismatch"],
  [`${PAYLOAD}.channelConfig.receiverAuthorizer`, zeroAddress, "channel_id_mismatch"],
  ...["900", 900.5, -1, 2 ** 40].map((value): Case => [
    `${PAYLOAD}.channelConfig.withdrawDelay`,
    value,
    /withdrawDelay must be/,
  ]),
  ...[0, 2 ** 40 - 1].map((value): Case => [
    `${PAYLOAD}.channelConfig.withdrawDelay`,
    value,
    "channel_id_mismatch",
  ]),
  // A list of one text reads like the text.
  ...["0x12", 7, `0x${"z".repeat(64)}`, [`0x${"11".repeat(32)}`]].map((value): Case => [
    `${PAYLOAD}.channelConfig.salt`,
    value,
    /salt must be/,
  ]),
  [`${PAYLOAD}.voucher`, "text", /voucher must be an object/],
  ...["-1", "1.5", 7, UINT128].map((value): Case => [
    `${PAYLOAD}.voucher.maxClaimableAmount`,
    value,
    /must be a decimal string/,
  ]),
  [`${PAYLOAD}.voucher.signature`, undefined, /voucher\.signature must be a string/],
  [`${PAYLOAD}.voucher.channelId`, `0x${"11".repeat(32)}`, "channel_id_mismatch"],
  [`${TERMS}.payTo`, OTHER, "receiver_mismatch"],
  [`${TERMS}.asset`, OTHER, "token_mismatch"],
  [`${TERMS}.extra.receiverAuthorizer`, OTHER, "receiver_authorizer_mismatch"],
  [`${TERMS}.extra.receiverAuthorizer`, undefined, "receiver_authorizer_mismatch"],
  [`${TERMS}.extra.withdrawDelay`, 901, "withdraw_delay_mismatch"],
  [`${TERMS}.extra.withdrawDelay`, undefined, OK],
];

const DEPOSIT = `${PAYLOAD}.deposit`;
const EIP3009 = `${DEPOSIT}.authorization.erc3009Authorization`;
const PERMIT2 = `${DEPOSIT}.authorization.permit2Authorization`;

const DEPOSITS: Case[] = [
  [DEPOSIT, undefined, /deposit\.amount must be/],
  [`${DEPOSIT}.amount`, UINT128, /deposit\.amount must be/],
  [EIP3009, undefined, "erc3009_authorization_required"],
  [`${TERMS}.extra.assetTransferMethod`, "permit2", "payload_type"],
  [`${TERMS}.extra.assetTransferMethod`, "another", "payload_type"],
  [`${TERMS}.extra.name`, "", "missing_eip712_domain"],
  [`${TERMS}.extra.name`, 7, "missing_eip712_domain"],
  [`${TERMS}.extra.version`, "", "missing_eip712_domain"],
  [`${TERMS}.extra.version`, 2, "missing_eip712_domain"],
  [`${EIP3009}.validBefore`, `${NOW + 5n}`, "payload_authorization_valid_before"],
  [`${EIP3009}.validBefore`, `${NOW + 6n}`, "receive_authorization_signature"],
  [`${EIP3009}.validAfter`, `${NOW + 1n}`, "payload_authorization_valid_after"],
  [`${EIP3009}.validAfter`, `${NOW}`, "receive_authorization_signature"],
  [`${EIP3009}.validAfter`, "x", /needs validAfter/],
  [`${EIP3009}.validBefore`, undefined, /needs validAfter/],
  [`${EIP3009}.salt`, "0x1", /needs validAfter/],
  [`${EIP3009}.signature`, 7, /needs validAfter/],
  [`${DEPOSIT}.amount`, "9999", "receive_authorization_signature"],
];

const PERMIT2_DEPOSITS: Case[] = [
  [PERMIT2, [], "permit2_authorization_required"],
  [`${TERMS}.extra.assetTransferMethod`, "eip3009", "erc3009_authorization_required"],
  [`${TERMS}.extra.assetTransferMethod`, undefined, OK],
  [`${TERMS}.extra.assetTransferMethod`, "another", "payload_type"],
  [`${PERMIT2}.from`, OTHER, "permit2_invalid_signature"],
  [`${PERMIT2}.spender`, OTHER, "permit2_invalid_spender"],
  [`${PERMIT2}.permitted.token`, OTHER, "token_mismatch"],
  [`${PERMIT2}.permitted.amount`, "9999", "permit2_amount_mismatch"],
  [`${PERMIT2}.witness.channelId`, `0x${"11".repeat(32)}`, "channel_id_mismatch"],
  [`${PERMIT2}.witness`, 7, "channel_id_mismatch"],
  [`${PERMIT2}.deadline`, `${NOW + 5n}`, "permit2_deadline_expired"],
  [`${PERMIT2}.deadline`, `${NOW + 6n}`, "permit2_invalid_signature"],
  [`${PERMIT2}.nonce`, "1", "permit2_invalid_signature"],
  [`${PERMIT2}.nonce`, -1, /needs nonce/],
  [`${PERMIT2}.deadline`, "", /needs nonce/],
  [`${PERMIT2}.signature`, undefined, /needs nonce/],
];

/** Of everything that a receiver posts. */
const NOT_OURS: Case[] = [
  ["paymentPayload.accepted.scheme", "exact", "scheme"],
  ["paymentPayload.accepted.network", "eip155:1", "network_mismatch"],
  ["paymentPayload.payload", 7, /payload must be an object/],
];

async function check(
  t: Pick<Test, "equal" | "match">,
  body: Body,
  verdictOf: (body: Body) => string,
  cases: readonly Case[],
): Promise<void> {
  t.equal(verdictOf(body), OK, "as it was made");
  for (const [path, value, verdict] of cases)
    t.match(verdictOf(change(body, path, value)), verdict, `${path}: ${String(value)}`);
}

t.test("a voucher", async (t) => {
  await check(t, await voucherBody(channel, 1_000n), payersVerdict, [
    ...ALWAYS,
    ["x402Version", 1, "invalid_x402_version"],
    ["paymentPayload.payload", 7, /payload must be an object/],
    [`${TERMS}.amount`, "0", OK],
  ]);
  const refund = await voucherBody(channel, 1_000n, { type: "refund" });
  await check(t, refund, payersVerdict, ALWAYS);
});

t.test("the withdraw delay's bounds", async (t) => {
  for (const [withdrawDelay, verdict] of [
    [899, "withdraw_delay_out_of_range"],
    [900, OK],
    [2_592_000, OK],
    [2_592_001, "withdraw_delay_out_of_range"],
  ] as const) {
    const bound = channelOf(chain, { voucherKey: account(), config: { withdrawDelay } });
    const body = await voucherBody(bound, 1_000n, { extra: { withdrawDelay } });
    t.equal(payersVerdict(body), verdict, `${withdrawDelay}`);
  }
});

t.test("a deposit", async (t) => {
  await check(t, await depositBody(channel), payersVerdict, [...ALWAYS, ...DEPOSITS]);
  const permit2 = await permit2Body(channel);
  await check(t, permit2, payersVerdict, [...ALWAYS, ...PERMIT2_DEPOSITS]);
});

t.test("channels are read in version 2 only", async (t) => {
  const body = await voucherBody(channel, 1_000n);
  const { paymentPayload } = body as unknown as { paymentPayload: object };
  const older = change(
    { ...body, paymentPayload: { ...paymentPayload, scheme: "batch-settlement", network: ARC.id } },
    "x402Version",
    1,
  );
  t.equal(payersVerdict(change(older, "paymentPayload.x402Version", 1)), "unsupported_scheme");
});

t.test("a channel without a receiver's authorizer could never be claimed from", async (t) => {
  const bound = channelOf(chain, {
    voucherKey: account(),
    config: { receiverAuthorizer: zeroAddress },
  });
  t.equal(payersVerdict(await voucherBody(bound, 1_000n)), "receiver_authorizer_mismatch");
});

t.test("a refusal names the payer, where it can be read", async (t) => {
  const body = await voucherBody(channel, 1_000n);
  const payerOf = (path: string, value: unknown) => {
    const read = readVoucher(change(body, path, value), [ARC]);
    return "reason" in read ? read.payer : OK;
  };
  const { payer } = channel.config;
  t.equal(payerOf(`${PAYLOAD}.voucher`, 7), payer);
  t.equal(payerOf(`${PAYLOAD}.channelConfig.salt`, 7), payer);
  t.equal(payerOf(`${PAYLOAD}.channelConfig.payer`, 7), undefined);
  t.equal(payerOf(`${PAYLOAD}.channelConfig`, 7), undefined);
  const refund = await refundBody(channel, { amount: 300n });
  const read = readOrder(change(refund, `${PAYLOAD}.refundNonce`, undefined), [ARC]);
  t.match(read, { payer });
});

t.test("requests for channels are those whose seller names the scheme", async (t) => {
  const body = await voucherBody(channel, 1_000n);
  t.equal(isForChannels(body), true);
  t.equal(isForChannels(change(body, "paymentPayload.accepted.scheme", "exact")), true);
  t.equal(isForChannels(change(body, `${TERMS}.scheme`, "exact")), false);
  t.equal(isForChannels(change(body, TERMS, undefined)), false);
  for (const other of [{}, null, undefined, "text", [], { paymentRequirements: 7 }])
    t.equal(isForChannels(other), false);
});

function deposit(body: Body): DepositPayment {
  const voucher = readVoucher(body, [ARC]);
  const read = "reason" in voucher ? voucher : readDeposit(voucher);
  if ("reason" in read) throw new Error(read.message);
  return read;
}

t.test("without a time nothing is too late or too early", async (t) => {
  for (const body of [
    await depositBody(channel, { validAfter: NOW + 9_000n, validBefore: 1n }),
    await permit2Body(channel, { permitted: { deadline: 1n } }),
  ]) {
    const read = deposit(body);
    t.equal(read.scheme.checkFirst?.(read, undefined), undefined);
    t.match(read.scheme.checkFirst?.(read, NOW), { isValid: false });
  }
});

t.test("a deposit is settled as a payment into the channel", async (t) => {
  const { payer, receiver, token } = channel.config;
  const channelId = channelIdOf(ARC.chainId, channel.config);
  const common = { chainId: ARC.chainId, asset: token.toLowerCase(), from: payer.toLowerCase() };
  const own = deposit(await depositBody(channel, { amount: 5_000n, validBefore: NOW + 99n }));
  t.match(own, { payer, payTo: receiver.toLowerCase(), amountAtomic: 5_000n });
  t.match(own.authorization, {
    ...common,
    value: 5_000n,
    validAfter: 0n,
    validBefore: NOW + 99n,
    terms: { scheme: "channel-eip3009", channelId },
  });
  const permitted = deposit(await permit2Body(channel, { permitted: { deadline: NOW + 99n } }));
  t.match(
    permitted.authorization,
    { ...common, validBefore: NOW + 100n, terms: { scheme: "channel-permit2", channelId } },
    "Permit2 takes it in the second of its deadline, so it is not given up before",
  );
  t.notOk("permit" in (permitted.authorization.terms ?? {}));
  // Only a voucher's own request reads a deposit: as a payment of another kind it is refused.
  for (const { scheme } of [own, permitted])
    t.match(scheme.read({} as never, {} as never), { isValid: false, reason: /payload_type$/ });
});

t.test("an envelope around a deposit's signature over Permit2", async (t) => {
  const body = await permit2Body(channel);
  const at = `${PERMIT2}.signature`;
  const { signature } = deposit(body);
  const envelope = serializeErc6492Signature({
    address: OTHER,
    data: "0x01",
    signature: signature as Hex,
  });
  t.equal(deposit(change(body, at, envelope)).signature, signature, "Permit2 takes what is inside");
  const broken = `0x12${"6492".repeat(16)}`;
  t.equal(deposit(change(body, at, broken)).signature, broken);
  t.equal(payersVerdict(change(body, at, broken)), "permit2_invalid_signature");
});

t.test("a token's permit that comes with a deposit", async (t) => {
  const { payer, token } = channel.config;
  const info = {
    from: payer,
    asset: token,
    spender: PERMIT2_ADDRESS,
    amount: "10000",
    nonce: "0",
    deadline: `${NOW + 600n}`,
    signature: `0x${"ab".repeat(65)}`,
    version: "1",
  };
  const body = await permit2Body(channel, { extensions: { eip2612GasSponsoring: { info } } });
  const INFO = "paymentPayload.extensions.eip2612GasSponsoring.info";
  await check(t, body, payersVerdict, [
    [`${INFO}.amount`, "9999", "eip2612_amount_mismatch"],
    [`${INFO}.amount`, "10001", "eip2612_amount_mismatch"],
    [`${INFO}.from`, OTHER, "eip2612_from_mismatch"],
    [`${INFO}.asset`, OTHER, "eip2612_asset_mismatch"],
    [`${INFO}.spender`, OTHER, "eip2612_spender_not_permit2"],
    [`${INFO}.deadline`, `${NOW + 5n}`, "eip2612_deadline_expired"],
    [`${INFO}.signature`, "0x12", "invalid_eip2612_extension_format"],
    [INFO, undefined, OK],
  ]);
  const { amount, deadline, signature } = info;
  t.match(deposit(body).authorization.terms, { permit: { amount, deadline, signature } });
});

t.test("a claim", async (t) => {
  const rows = [{ channel, ceiling: 1_000n, total: 700n }] as const;
  const body = await claimBody([...rows]);
  const claims = `${PAYLOAD}.claims`;
  await check(t, body, receiversVerdict, [
    [`${PAYLOAD}.claimAuthorizerSignature`, undefined, OK],
    [`${PAYLOAD}.claimAuthorizerSignature`, "0x", OK],
    [`${PAYLOAD}.claimAuthorizerSignature`, "0x1", /must be hex/],
    [`${PAYLOAD}.claimAuthorizerSignature`, `0x${"11".repeat(4_000)}`, /must be hex/],
    [`${PAYLOAD}.claimAuthorizerSignature`, `0x${"11".repeat(3_999)}`, OK],
    [claims, [], /claims must not be empty/],
    [claims, {}, /claims must be a list/],
    [claims, Array.from({ length: 101 }, () => ({})), /claims must be at most 100/],
    [claims, [7], /claims\[0\] must have a voucher/],
    [claims, [{ voucher: 7 }], /claims\[0\] must have a voucher/],
    [`${claims}.0.voucher.channel.token`, 7, /claims\[0\]\.voucher\.channel\.token must be/],
    [`${claims}.0.voucher.maxClaimableAmount`, UINT128, /decimal strings/],
    [`${claims}.0.totalClaimed`, 700, /decimal strings/],
    [`${claims}.0.signature`, "0x", /claims\[0\]\.signature must be hex/],
    [`${claims}.0.signature`, 7, /claims\[0\]\.signature must be hex/],
    [`${claims}.0.signature`, ["0x1111"], /claims\[0\]\.signature must be hex/],
    ...NOT_OURS,
    [`${PAYLOAD}.type`, "deposit", "payload_type"],
    [`${PAYLOAD}.type`, "refund", "payload_type"],
  ]);
  const [row] = rows;
  const most = await claimBody([row, ...Array.from({ length: 99 }, () => row)]);
  const { payload } = most.paymentPayload as unknown as { payload: Record<string, Hex & Hex[]> };
  const posted = payload["claims"] as unknown as { signature: Hex }[];
  const order = readOrder(most, [ARC]);
  t.match(order, { type: "claim", signature: payload["claimAuthorizerSignature"] });
  const read = "claims" in order ? order.claims : [];
  const { salt } = channel.config;
  t.same(
    read.map(({ channel: { salt }, ceiling, total, signature }) => [
      salt,
      ceiling,
      total,
      signature,
    ]),
    posted.map(({ signature }) => [salt, "1000", "700", signature]),
    "every row of a hundred is claimed",
  );
});

t.test("a settle and a refund", async (t) => {
  await check(t, settleBody(channel), receiversVerdict, [
    [`${PAYLOAD}.receiver`, zeroAddress, /receiver is the zero address/],
    [`${PAYLOAD}.token`, undefined, /token must be/],
    ...NOT_OURS,
  ]);
  const rows = [{ channel, ceiling: 1_000n, total: 700n }];
  await check(t, await refundBody(channel, { amount: 300n, rows }), receiversVerdict, [
    [`${PAYLOAD}.amount`, "0", /above zero/],
    [`${PAYLOAD}.amount`, UINT128, /above zero/],
    [`${PAYLOAD}.refundNonce`, -1, /above zero/],
    [`${PAYLOAD}.refundNonce`, undefined, "payload_type"],
    [`${PAYLOAD}.claims`, undefined, "payload_type"],
    [`${PAYLOAD}.claims`, 7, /claims must be a list/],
    [`${PAYLOAD}.claims`, [], OK],
    [`${PAYLOAD}.channelConfig.payer`, 7, /channelConfig\.payer must be/],
    [`${PAYLOAD}.voucher.channelId`, `0x${"11".repeat(32)}`, "channel_id_mismatch"],
    [`${PAYLOAD}.refundAuthorizerSignature`, "0x1", /must be hex/],
    [`${PAYLOAD}.claimAuthorizerSignature`, "hex", /must be hex/],
    [`${PAYLOAD}.refundAuthorizerSignature`, undefined, OK],
    ...NOT_OURS,
    // What a payer sends to have its channel refunded is not yet for the chain.
    [`${PAYLOAD}.type`, "voucher", "payload_type"],
    [`${PAYLOAD}.voucher`, undefined, "payload_type"],
    ...["channelId", "maxClaimableAmount", "signature"].map((name): Case => [
      `${PAYLOAD}.voucher.${name}`,
      undefined,
      "payload_type",
    ]),
  ]);
});

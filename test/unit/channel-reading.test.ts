// Goal: whatever is posted for a payment channel is read as it was meant, or refused with the code and field at fault.
import t, { type Test } from "tap";
import { zeroAddress } from "viem";
import {
  readDeposit,
  readOrder,
  readVoucher,
} from "../../server/schemes/batch-settlement/index.ts";
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
  ...["0x12", 7, `0x${"z".repeat(64)}`].map((value): Case => [
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
  [`${TERMS}.extra.name`, "", "missing_eip712_domain"],
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
    [`${PAYLOAD}.type`, "deposit", "payload_type"],
    [`${PAYLOAD}.type`, "refund", "payload_type"],
  ]);
});

t.test("a settle and a refund", async (t) => {
  await check(t, settleBody(channel), receiversVerdict, [
    [`${PAYLOAD}.receiver`, zeroAddress, /receiver is the zero address/],
    [`${PAYLOAD}.token`, undefined, /token must be/],
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
  ]);
});

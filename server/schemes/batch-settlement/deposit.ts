/**
 * A payer's deposit into its channel, over EIP-3009 or Permit2: for the facilitator a payment like any other, to the
 * channel contract. What the payer signs names the channel, so the money arrives there, no matter who
 * relays it.
 */
import type { Address, Hex } from "viem";
import { hexToBytes } from "viem";
import { addressTopic, uintOf } from "../../core/abi.ts";
import type { SchemeTerms } from "../../core/authorization.ts";
import { isRecord, parseAddress } from "../../core/foreign-text.ts";
import { parseAtomic } from "../../core/money.ts";
import { isKeySignature, signatureOfKey, unwrapSignature } from "../../core/signatures.ts";
import {
  AUTHORIZATION_CANCELED,
  AUTHORIZATION_USED,
  authorizationStateCalldata,
  TRANSFER,
} from "../exact-eip3009/onchain.ts";
import * as permit2 from "../permit2/onchain.ts";
import { checkPermit, PERMIT_EXTENSION, readSponsoring } from "../permit2/reading.ts";
import {
  APPROVAL_EXTENSION,
  checkApproval,
  hasApproval,
  readApproval,
} from "../permit2/approval.ts";
import {
  refuse,
  type AuthorizationOutcome,
  type Checking,
  type ExpectedTransfer,
  type Payment,
  type PayerApproval,
  type Refusal,
  type Relaying,
  type Shown,
} from "../scheme.ts";
import {
  CHANNELS,
  DEPOSITED,
  EIP3009_COLLECTOR,
  depositCall,
  depositNonce,
  eip3009Collector,
  errorName,
  eventsOf,
  permit2Collector,
  PERMIT2_COLLECTOR,
  permitDigest,
  receiveDigest,
} from "./contract.ts";
import { isWord, readUint128, type Voucher } from "./reading.ts";

export interface DepositPayment extends Payment {
  readonly voucher: Voucher;
  readonly digest: Hex;
  /** Checks of the deposit's own fields, before its signature. Without a time, the window is not checked. */
  checkFields(nowSeconds: bigint | undefined): Refusal | undefined;
  /** Checks of what the payer sent to allow Permit2 to move its money. */
  checkSponsoring?(nowSeconds: bigint | undefined): Refusal | undefined;
  /** The payer's own approval of Permit2, signed and not sent. Undefined if there is none, or a false one. */
  payerApproval?(): PayerApproval | undefined;
}

const MIN_LIFETIME_SECONDS = 6n;
const ALLOWANCE_REQUIRED = "invalid_batch_settlement_evm_permit2_allowance_required";
/** Upper bounds with a plain key, for a first deposit through the token's proxy contract. */
const EIP3009_GAS = 190_000n;
const PERMIT2_GAS = 220_000n;
const PERMIT_GAS = 70_000n;

const wrong = (what: string, voucher: Voucher, message?: string): Refusal =>
  refuse(
    `invalid_batch_settlement_evm_${what}` as Refusal["reason"],
    voucher.channel.payer,
    message,
  );

/** The deposit of a payload whose voucher was read. */
export function readDeposit(voucher: Voucher): DepositPayment | Refusal {
  const { deposit } = voucher.parts.payload;
  const fields = isRecord(deposit) ? deposit : {};
  const amount = readUint128(fields["amount"]);
  if (amount === undefined)
    return refuse(
      "invalid_payload",
      voucher.channel.payer,
      "deposit.amount must be a decimal string of a uint128.",
    );
  const authorization = isRecord(fields["authorization"]) ? fields["authorization"] : {};
  const { extra } = voucher.parts.requirements;
  const method = isRecord(extra) ? extra["assetTransferMethod"] : undefined;
  // Some clients send null for what they do not have.
  const hasPermit2 = Boolean(authorization["permit2Authorization"]);
  if (method === "permit2" && !hasPermit2) return wrong("payload_type", voucher);
  if (method && method !== "permit2" && method !== "eip3009")
    return wrong(
      "payload_type",
      voucher,
      "extra.assetTransferMethod must be eip3009 or permit2, where it is given.",
    );
  return (method ? method === "permit2" : hasPermit2)
    ? readPermit2(voucher, amount, authorization["permit2Authorization"])
    : readEip3009(voucher, amount, authorization["erc3009Authorization"]);
}

function paymentOf(
  voucher: Voucher,
  own: Pick<
    DepositPayment,
    "scheme" | "signature" | "digest" | "checkFields" | "checkSponsoring" | "payerApproval"
  > & {
    amount: bigint;
    validAfter: bigint;
    validBefore: bigint;
    nonce: `channel:${Hex}` | `permit2:${Hex}`;
    terms: SchemeTerms;
  },
): DepositPayment {
  const { network, networkName, channel, required } = voucher;
  const { amount, validAfter, validBefore, nonce, terms, ...rest } = own;
  return {
    ...rest,
    voucher,
    version: 2,
    network,
    networkName,
    payTo: required.payTo,
    amountAtomic: amount,
    payer: channel.payer,
    authorization: {
      chainId: network.chainId,
      asset: required.asset,
      from: channel.config.payer,
      to: CHANNELS.toLowerCase() as Address,
      value: amount,
      validAfter,
      validBefore,
      nonce,
      terms,
    },
  };
}

function readEip3009(voucher: Voucher, amount: bigint, fields: unknown): DepositPayment | Refusal {
  if (!isRecord(fields)) return wrong("erc3009_authorization_required", voucher);
  const { extra } = voucher.parts.requirements;
  const { name, version } = isRecord(extra) ? extra : {};
  if (typeof name !== "string" || typeof version !== "string" || name === "" || version === "")
    return wrong("missing_eip712_domain", voucher);
  const validAfter = parseAtomic(fields["validAfter"]);
  const validBefore = parseAtomic(fields["validBefore"]);
  const { salt, signature } = fields;
  if (
    validAfter === undefined ||
    validBefore === undefined ||
    !isWord(salt) ||
    typeof signature !== "string"
  )
    return refuse(
      "invalid_payload",
      voucher.channel.payer,
      "erc3009Authorization needs validAfter, validBefore, salt and signature.",
    );
  const { channel, network, required } = voucher;
  const nonce = depositNonce(channel.id, salt.toLowerCase() as Hex);
  const domain = {
    name,
    version,
    chainId: network.chainId,
    verifyingContract: required.asset,
  };
  const { config } = channel;
  return paymentOf(voucher, {
    scheme: channelEip3009,
    signature,
    digest: receiveDigest({
      domain,
      from: config.payer,
      value: amount,
      validAfter,
      validBefore,
      nonce,
    }),
    amount,
    validAfter,
    validBefore,
    nonce: `channel:${nonce}`,
    terms: {
      scheme: "channel-eip3009",
      channelId: channel.id,
      config,
      salt: salt.toLowerCase() as Hex,
    },
    checkFields(nowSeconds) {
      if (nowSeconds === undefined) return undefined;
      if (validBefore < nowSeconds + MIN_LIFETIME_SECONDS)
        return wrong("payload_authorization_valid_before", voucher);
      return validAfter > nowSeconds
        ? wrong("payload_authorization_valid_after", voucher)
        : undefined;
    },
  });
}

function readPermit2(voucher: Voucher, amount: bigint, fields: unknown): DepositPayment | Refusal {
  const { channel, network } = voucher;
  const { config } = channel;
  if (!isRecord(fields)) return wrong("permit2_authorization_required", voucher);
  const permitted = isRecord(fields["permitted"]) ? fields["permitted"] : {};
  const witness = isRecord(fields["witness"]) ? fields["witness"] : {};
  const nonce = parseAtomic(fields["nonce"]);
  const deadline = parseAtomic(fields["deadline"]);
  const signedAmount = parseAtomic(permitted["amount"]);
  const { signature } = fields;
  if (nonce === undefined || deadline === undefined || typeof signature !== "string")
    return refuse(
      "invalid_payload",
      channel.payer,
      "permit2Authorization needs nonce, deadline and signature.",
    );
  const { extensions } = voucher.parts;
  const sponsoring = readSponsoring(extensions[PERMIT_EXTENSION]);
  const bound = { payer: channel.payer, from: config.payer, asset: config.token };
  // With the token's permit, the approval is not needed.
  const approval = sponsoring ? undefined : readApproval(voucher.parts, network);
  const approved =
    approval && checkApproval(approval, { ...bound, chainId: network.chainId, amount });
  const isAt = (value: unknown, address: string): boolean => {
    const parsed = parseAddress(value);
    return parsed.ok && parsed.address === address.toLowerCase();
  };
  return paymentOf(voucher, {
    scheme: channelPermit2,
    signature: unwrapSignature(signature)?.inner ?? signature,
    digest: permitDigest(permit2.domainOf(network.chainId), {
      channelId: channel.id,
      token: config.token,
      amount,
      nonce,
      deadline,
    }),
    amount,
    validAfter: 0n,
    // Permit2 accepts the second of its deadline.
    validBefore: deadline + 1n,
    nonce: permit2.storedNonce(nonce),
    terms: {
      scheme: "channel-permit2",
      channelId: channel.id,
      config,
      ...(sponsoring && { permit: sponsoring.permit }),
    },
    checkFields(nowSeconds) {
      if (!isAt(fields["from"], config.payer)) return wrong("permit2_invalid_signature", voucher);
      if (!isAt(fields["spender"], PERMIT2_COLLECTOR))
        return wrong("permit2_invalid_spender", voucher);
      if (!isAt(permitted["token"], config.token)) return wrong("token_mismatch", voucher);
      if (signedAmount !== amount) return wrong("permit2_amount_mismatch", voucher);
      const { channelId } = witness;
      if (typeof channelId !== "string" || channelId.toLowerCase() !== channel.id)
        return wrong("channel_id_mismatch", voucher);
      return nowSeconds !== undefined && deadline < nowSeconds + MIN_LIFETIME_SECONDS
        ? wrong("permit2_deadline_expired", voucher)
        : undefined;
    },
    checkSponsoring(nowSeconds) {
      if (sponsoring)
        return (
          checkPermit(sponsoring, bound, nowSeconds) ??
          (BigInt(sponsoring.permit.amount) === amount
            ? undefined
            : wrong("eip2612_amount_mismatch", voucher))
        );
      if (approved) return "reason" in approved ? approved : undefined;
      return hasApproval(extensions[APPROVAL_EXTENSION])
        ? wrong("erc20_approval_unavailable", voucher)
        : undefined;
    },
    payerApproval: () => (approved && "raw" in approved ? approved : undefined),
  });
}

type Common = Checking<DepositPayment> & Relaying;
type Shared = Pick<
  Common,
  "read" | "examine" | "checkFirst" | "checkTerms" | "reasonOtherAsset" | "reasonExpired"
>;

const shared: Shared = {
  read: () => refuse("invalid_batch_settlement_evm_payload_type"),
  examine: (payment) => ({
    digest: payment.digest,
    ecdsa: signatureOfKey(
      hexToBytes(payment.digest),
      payment.signature,
      payment.authorization.from,
    ),
  }),
  checkFirst: (payment, nowSeconds) => payment.checkFields(nowSeconds),
  checkTerms: (payment, nowSeconds) => payment.checkSponsoring?.(nowSeconds),
  reasonOtherAsset: "invalid_batch_settlement_evm_token_mismatch",
  reasonExpired: "invalid_batch_settlement_evm_payload_authorization_valid_before",
};

const explainRevert: Relaying["explainRevert"] = (text) => {
  const name = errorName(text);
  return {
    reason: "invalid_batch_settlement_evm_deposit_transaction_failed",
    message: `The deposit fails on chain.${name === undefined ? "" : ` (${name.slice(0, 200)})`}`,
    isOfState: /used or canceled|expired|not yet valid|InvalidNonce/i.test(name ?? ""),
  };
};

export function termsOf<Name extends SchemeTerms["scheme"]>(
  { terms }: { terms?: SchemeTerms | null | undefined },
  name: Name,
): Extract<SchemeTerms, { scheme: Name }> {
  if (terms?.scheme !== name) throw new Error(`not a settlement of ${name}`);
  return terms as Extract<SchemeTerms, { scheme: Name }>;
}

/** The contract logs the deposit for this channel. */
const isDeposited = (logs: Shown["logs"], { value }: ExpectedTransfer, channelId: Hex): boolean =>
  eventsOf(logs, DEPOSITED, channelId).some(({ words }) => words[0] === value);

const tokenNonce = ({ nonce }: { nonce: string }): Hex => nonce.slice("channel:".length) as Hex;

export const channelEip3009: Common = {
  ...shared,
  explainFailure: ({ payer, amountAtomic }, { balanceAtomic, revert }) =>
    (balanceAtomic ?? amountAtomic) < amountAtomic
      ? refuse("invalid_batch_settlement_evm_insufficient_balance", payer)
      : refuse(
          "invalid_batch_settlement_evm_deposit_simulation_failed",
          payer,
          explainRevert(revert).message,
        ),
  reasonSignature: "invalid_batch_settlement_evm_receive_authorization_signature",

  planTransfer(authorization) {
    const { config, salt } = termsOf(authorization, "channel-eip3009");
    const { value, validAfter, validBefore, signature } = authorization;
    const { inner, deployment } = unwrapSignature(signature) ?? {
      inner: signature,
      deployment: undefined,
    };
    return {
      calls() {
        const collector = eip3009Collector({ validAfter, validBefore, salt, signature: inner });
        const deposit = depositCall(config, value, collector);
        return deployment
          ? [{ target: deployment.factory, data: deployment.data }, deposit]
          : [deposit];
      },
      isPlainKey: deployment === undefined && isKeySignature(inner),
      deployment,
      keyGas: EIP3009_GAS,
    };
  },
  payeeOf: (authorization) => termsOf(authorization, "channel-eip3009").config.receiver,
  collector: EIP3009_COLLECTOR.toLowerCase() as Address,
  stateCall: (ref) => ({
    target: ref.asset,
    data: authorizationStateCalldata(ref.from, tokenNonce(ref)),
  }),
  isEnded: (_ref, answer) => {
    const word = uintOf(answer);
    return word === undefined ? undefined : word !== 0n;
  },
  outcomeIn({ logs }, expected): AuthorizationOutcome {
    const topics = [addressTopic(expected.from), tokenNonce(expected)];
    const ends = logs.find(
      (log) =>
        log.address.toLowerCase() === expected.asset.toLowerCase() &&
        (log.topics[0] === AUTHORIZATION_USED || log.topics[0] === AUTHORIZATION_CANCELED) &&
        topics.every((topic, index) => log.topics[index + 1]?.toLowerCase() === topic),
    );
    if (!ends) return "untouched";
    if (ends.topics[0] === AUTHORIZATION_CANCELED) return "canceled";
    const { channelId } = termsOf(expected, "channel-eip3009");
    return isDeposited(logs, expected, channelId) ? "paid" : "used_otherwise";
  },
  isNamedInLogs: true,
  traceOf: () => undefined,
  endFilter: (expected) => ({
    address: expected.asset,
    topics: [
      [AUTHORIZATION_USED, AUTHORIZATION_CANCELED],
      addressTopic(expected.from),
      tokenNonce(expected),
    ],
  }),
  explainRevert,
  reasonUsed: "invalid_batch_settlement_evm_deposit_transaction_failed",
};

export const channelPermit2: Common = {
  ...shared,
  diagnosisCalls: (ref) => [permit2.allowanceCall(ref)],
  payerApproval: (payment) => payment.payerApproval?.(),
  reasonUnprepared: ALLOWANCE_REQUIRED,
  explainFailure(payment, { balanceAtomic, reads, revert }) {
    const { payer, amountAtomic, authorization } = payment;
    const { permit } = termsOf(authorization, "channel-permit2");
    const isPoor = (balanceAtomic ?? amountAtomic) < amountAtomic;
    // With the token's permit, the allowance comes with the deposit; with the payer's approval, before it.
    const isAllowed = permit !== undefined || (isPoor && payment.payerApproval?.() !== undefined);
    if (!isAllowed && (uintOf(reads?.[0]) ?? amountAtomic) < amountAtomic)
      return refuse(ALLOWANCE_REQUIRED, payer);
    return isPoor
      ? refuse("invalid_batch_settlement_evm_insufficient_balance", payer)
      : refuse(
          "invalid_batch_settlement_evm_deposit_simulation_failed",
          payer,
          explainRevert(revert).message,
        );
  },
  reasonSignature: "invalid_batch_settlement_evm_permit2_invalid_signature",

  planTransfer(authorization) {
    const { config, permit } = termsOf(authorization, "channel-permit2");
    const { value, signature } = authorization;
    const collector = permit2Collector({
      nonce: permit2.nonceOf(authorization),
      deadline: permit2.deadlineOf(authorization),
      signature,
      permit,
    });
    return {
      calls: () => [depositCall(config, value, collector)],
      isPlainKey: isKeySignature(signature),
      deployment: undefined,
      keyGas: PERMIT2_GAS + (permit ? PERMIT_GAS : 0n),
    };
  },
  payeeOf: (authorization) => termsOf(authorization, "channel-permit2").config.receiver,
  stateCall: permit2.stateCall,
  isEnded: permit2.isEnded,
  // No log names the nonce. In the block in which it was used, such a deposit into this channel was this one: the
  // money of any other would be in the same channel.
  outcomeIn: ({ logs }, expected) =>
    isDeposited(logs, expected, termsOf(expected, "channel-permit2").channelId)
      ? "paid"
      : "untouched",
  isNamedInLogs: false,
  traceOf: ({ terms, value }) => `${termsOf({ terms }, "channel-permit2").channelId} ${value}`,
  endFilter: ({ asset, from }) => ({
    address: asset,
    topics: [[TRANSFER], addressTopic(from), addressTopic(CHANNELS)],
  }),
  explainRevert,
  reasonUsed: "invalid_batch_settlement_evm_deposit_transaction_failed",
};

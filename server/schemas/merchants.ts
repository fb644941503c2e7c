/** Wire types of the merchant's pages: settlements to the signed-in wallet, refunds, keys. */
import { Type, type Static, type TProperties } from "typebox";
import {
  AddressInput,
  AddressOutput,
  Amount,
  Described,
  Digits,
  Hex32,
  Id,
  NetworkId,
  Nullable,
  OneOf,
  Page,
  pageQuery,
  Problem,
  Strict,
  ThirdParty,
  Timestamp,
  TxHash,
  TypedDataTypes,
} from "./common.ts";
import { SettlementStatus } from "./facilitator.ts";
import { OrderSignature } from "./orders.ts";

const Count = Type.Integer();
const Optional = Type.Optional;

const Reasons = Type.Array(
  Type.Object({
    reason: Type.String({ description: "The protocol's reason code" }),
    message: Type.String({ description: "A sentence for people" }),
    count: Count,
    lastAt: Timestamp,
  }),
);

export const MerchantQuery = Strict({
  days: Optional(
    Type.String({ pattern: "^(7|30|90)$", description: "Of these days (UTC): 7, 30 or 90; 30" }),
  ),
});

export const Merchant = Type.Object({
  address: AddressOutput,
  network: Nullable(
    NetworkId,
    "The network of a contract account, the only one on which it is a merchant; null: all networks",
  ),
  admitted: Type.Boolean({
    description:
      "The operator admitted this wallet: with its own key, its settlements use the merchants' gas budget",
  }),
  needsKey: Type.Boolean({ description: "Verify and settle need a key" }),
  facilitator: Type.String({ description: "The URL a paid API sets as its facilitator" }),
  totals: Type.Object({
    settled: Count,
    volume: Amount,
    pending: Described(Count, "Accepted, without an outcome yet"),
    failed: Count,
    refunds: Described(Count, "Completed or still possible"),
    refunded: Amount,
    payers: Described(Count, "Different wallets that paid"),
  }),
  days: Type.Array(
    Type.Object({
      day: Timestamp,
      settled: Count,
      failed: Count,
      volume: Amount,
      refunded: Amount,
    }),
  ),
  failures: Described(Reasons, "Settlements that failed, by reason"),
  refusals: Described(
    Reasons,
    "Payments that verify or settle refused, by reason; counted per hour, and stored only for wallets that have a key or were paid here",
  ),
});
export type Merchant = Static<typeof Merchant>;

export const RefundStatus = OneOf(
  ["pending", "settled", "failed"],
  "pending: signed and sent; the outcome is not known yet",
);

export const Refund = Type.Object({
  id: Id,
  settlementId: Id,
  status: RefundStatus,
  amount: Amount,
  network: NetworkId,
  payer: Described(AddressOutput, "The recipient of the refund"),
  txHash: Nullable(TxHash),
  final: Type.Boolean(),
  errorReason: Nullable(Type.String()),
  createdAt: Timestamp,
  settledAt: Nullable(Timestamp),
});
export type Refund = Static<typeof Refund>;

const settlement = {
  id: Id,
  status: SettlementStatus,
  scheme: Type.String({ description: "As the protocol names it" }),
  network: NetworkId,
  payer: AddressOutput,
  amount: Amount,
  maximum: Nullable(Amount, "The signed maximum, if less may be charged"),
  thirdParty: ThirdParty({
    url: Nullable(
      Type.String(),
      "The http(s) URL of what was sold, as the payment names it, not verified; null if it does not",
    ),
    method: Nullable(Type.String(), "Null if the payment does not name it"),
  }),
  txHash: Nullable(TxHash),
  final: Type.Boolean({ description: "Final: no reorganisation can reverse it" }),
  errorReason: Nullable(Type.String()),
  errorMessage: Nullable(Type.String()),
  refunded: Described(Amount, "Refunded, or still possible through a signed refund"),
  refundable: Described(Amount, "The amount that can still be refunded"),
  createdAt: Timestamp,
  settledAt: Nullable(Timestamp),
};
export const MerchantSettlement = Type.Object(settlement);
export type MerchantSettlement = Static<typeof MerchantSettlement>;
export const MerchantSettlementPage = Page(MerchantSettlement);
export const MerchantSettlementDetail = Type.Object({
  ...settlement,
  refunds: Type.Array(Refund),
});
export type MerchantSettlementDetail = Static<typeof MerchantSettlementDetail>;

const STATUS = "(pending|queued|submitted|settled|failed|expired)";
const filters = {
  status: Optional(
    Type.String({
      pattern: `^${STATUS}(,${STATUS}){0,5}$`,
      description: "One or several, comma separated; `pending` is queued and submitted",
      examples: ["settled"],
    }),
  ),
  network: Optional(NetworkId),
  from: Optional(Type.String({ maxLength: 40, description: "A time or a date, inclusive" })),
  to: Optional(Type.String({ maxLength: 40, description: "A time or a date, exclusive" })),
  payer: Optional(AddressInput),
  minimum: Optional(Described(Amount, "USDC: no smaller ones")),
};
export const MerchantSettlementFilters = Strict({ ...filters, ...pageQuery });
export type MerchantSettlementFilters = Static<typeof MerchantSettlementFilters>;
export const MerchantExportFilters = Strict(filters);

/** The message of EIP-3009's TransferWithAuthorization, integers as strings. */
export const RefundOrder = Strict({
  from: AddressOutput,
  to: AddressOutput,
  value: Digits,
  validAfter: Digits,
  validBefore: Digits,
  nonce: Hex32,
});
export type RefundOrder = Static<typeof RefundOrder>;

export const RefundRequest = Strict({
  amount: Optional(Described(Amount, "USDC; by default everything that is left")),
  authorization: Optional(
    Strict(
      { order: RefundOrder, signature: OrderSignature },
      {
        description:
          "The `order` of a 403 `owner_signature_required`, signed by the merchant's wallet",
      },
    ),
  ),
});
export type RefundRequest = Static<typeof RefundRequest>;

const toSign: TProperties = {
  order: Optional(RefundOrder),
  typedData: Optional(
    Type.Object(
      {
        types: TypedDataTypes,
        primaryType: Type.String(),
        domain: Type.Object({
          name: Type.String(),
          version: Type.String(),
          chainId: Type.Integer(),
          verifyingContract: AddressOutput,
        }),
        message: RefundOrder,
      },
      { description: "Ready for `eth_signTypedData_v4`" },
    ),
  ),
  expiresAt: Optional(Timestamp),
};
export const RefundProblem = Type.Object(
  { ...Problem.properties, ...toSign },
  {
    additionalProperties: true,
    description: "`owner_signature_required` includes the transfer to sign; other refusals do not",
  },
);

export const MerchantKeyInfo = Type.Object({
  id: Id,
  label: Type.String(),
  hint: Type.String({ examples: ["purser_mk_3f9a…x7Qk"] }),
  createdAt: Timestamp,
  lastUsedAt: Nullable(Timestamp),
  revokedAt: Nullable(Timestamp),
});
export type MerchantKeyInfo = Static<typeof MerchantKeyInfo>;
export const MerchantKeyPage = Page(MerchantKeyInfo);
export const CreateMerchantKey = Strict({
  label: Optional(Type.String({ maxLength: 100, pattern: "^[^\\u0000]*$" })),
});
export const CreatedMerchantKey = Type.Object({
  key: MerchantKeyInfo,
  apiKey: Type.String({ description: "Shown only once", examples: ["purser_mk_..."] }),
});
export const RevokedMerchantKey = Type.Object({ key: MerchantKeyInfo });

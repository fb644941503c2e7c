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
  missingCells,
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
    fix: Nullable(Type.String(), "What the seller changes; null if the chain gave the reason"),
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
    payers: Described(
      Count,
      "Different wallets that paid. A wallet with payments in two cells counts twice",
    ),
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
  ...missingCells,
});
export type Merchant = Static<typeof Merchant>;

export const MerchantProductQuery = Strict({ ...MerchantQuery.properties, ...pageQuery });
export type MerchantProductQuery = Static<typeof MerchantProductQuery>;
const MerchantProduct = Type.Object({
  id: Id,
  thirdParty: ThirdParty({
    url: Nullable(Type.String(), "Without its query; null: the payments do not name it"),
    method: Nullable(Type.String(), "Null: the payments do not name it"),
  }),
  settled: Count,
  volume: Amount,
  refunded: Described(Amount, "Of these payments: refunded, or still possible"),
  pending: Count,
  failed: Described(Count, "Accepted, and then not paid"),
  refused: Described(
    Count,
    "Refused by verify or settle. The first 100 products and reasons of a day (UTC) are counted",
  ),
  refusals: Described(Reasons, "The five most frequent reasons of these"),
});
export const MerchantProductPage = Type.Object({
  ...Page(MerchantProduct).properties,
  ...missingCells,
});
export type MerchantProductPage = Static<typeof MerchantProductPage>;

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
      "The http(s) URL of what was sold, without its query, as the payment names it, not verified; null if it does not",
    ),
    method: Nullable(Type.String(), "Null if the payment does not name it"),
    description: Nullable(Type.String(), "As the payment states it; null if it states none"),
  }),
  delivery: OneOf(
    ["delivered", "not_delivered", "not_reported"],
    "What the payer's wallet reported about the answer. Only wallets of this service report it",
  ),
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
export const MerchantSettlementPage = Type.Object({
  ...Page(MerchantSettlement).properties,
  ...missingCells,
});
export const MerchantSettlementDetail = Type.Object({
  ...settlement,
  receipt: Nullable(
    Type.String(),
    "The public page of this payment for its buyer; null: you have not made it",
  ),
  refunds: Type.Array(Refund),
});
export type MerchantSettlementDetail = Static<typeof MerchantSettlementDetail>;

const Text = (description: string) => Type.String({ description });
export const MerchantReceipt = Type.Object({
  id: Id,
  service: Text("The service that signed it"),
  status: OneOf(["paid", "removed"], "removed: a reorganisation of the chain removed the payment"),
  message: Text("The same as a sentence"),
  network: NetworkId,
  asset: AddressOutput,
  amount: Amount,
  payer: AddressOutput,
  payee: AddressOutput,
  paidAt: Text("Empty while it is not paid"),
  transaction: Text("Its hash; empty while it is not paid"),
  block: Text("Its number; empty while it is not paid"),
  blockHash: Text("Empty while it is not paid"),
  final: Type.Boolean({ description: "Final: no reorganisation can reverse it" }),
  refunded: Described(Amount, "Refunded, or still possible through a signed refund"),
  refunds: Type.Array(
    Type.Object({
      amount: Amount,
      status: RefundStatus,
      transaction: Text("Its hash; empty while it is not known"),
      at: Text("When it was paid; empty if it was not"),
    }),
  ),
  thirdParty: ThirdParty({
    url: Text("Of what was sold, without its query, as the payment names it; empty if it does not"),
    method: Text("Empty if the payment does not name it"),
  }),
  asOf: Described(Timestamp, "The time of this state"),
});
export type MerchantReceipt = Static<typeof MerchantReceipt>;
export const SignedMerchantReceipt = Type.Object({
  receipt: MerchantReceipt,
  signer: AddressOutput,
  signature: Type.String({ pattern: "^0x[0-9a-f]{130}$", examples: [`0x${"1".repeat(130)}`] }),
  domain: Type.Object({ name: Type.String(), version: Type.String(), chainId: Type.Integer() }),
  types: TypedDataTypes,
  primaryType: Type.String(),
});
export type SignedMerchantReceipt = Static<typeof SignedMerchantReceipt>;
export const NewMerchantReceipt = Type.Object({
  id: Id,
  url: Text("The page for the buyer. Anyone with this link can read it"),
});
export type NewMerchantReceipt = Static<typeof NewMerchantReceipt>;

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
  payment: Optional(
    Type.String({
      pattern: "^(0[xX][0-9a-fA-F]{64}|[A-Za-z][A-Za-z0-9_]{0,63})$",
      description:
        "A transaction hash, or the id of a settlement. Other wallets' payments are not found",
    }),
  ),
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

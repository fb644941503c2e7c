/** Wire types of the fees that payees owe this facilitator. */
import { Type, type Static } from "typebox";
import {
  AddressInput,
  AddressOutput,
  Amount,
  Described,
  Id,
  missingCells,
  NetworkId,
  Nullable,
  OneOf,
  Page,
  Strict,
  Timestamp,
  TxHash,
} from "./common.ts";

export const FeeAccount = Type.Object({
  network: NetworkId,
  owed: Amount,
  prepaid: Described(Amount, "Paid in advance; one of the two is 0"),
  charged: Described(Amount, "In all"),
  paid: Described(Amount, "In all"),
  refused: Type.Boolean({ description: "More is owed than the credit: new payments are refused" }),
});
export type FeeAccount = Static<typeof FeeAccount>;

export const MerchantFees = Type.Object({
  terms: Nullable(
    Type.Object({
      perSettlement: Amount,
      perMille: Type.String({ description: "Of the amount", examples: ["2.5"] }),
      mostPerMille: Type.String({
        description: "No fee is more than this part of its payment",
        examples: ["100"],
      }),
      credit: Described(Amount, "How much may be owed on a network"),
    }),
    "Null: this facilitator charges nothing now",
  ),
  pay: Nullable(
    Type.String(),
    "The URL at which this account's fees are paid, with x402; null where nothing can be paid",
  ),
  accounts: Type.Array(FeeAccount, { description: "One for each network with a fee or a payment" }),
});
export type MerchantFees = Static<typeof MerchantFees>;

export const FeeEntry = Type.Object({
  id: Described(Id, "The settlement's"),
  kind: OneOf(
    ["fee", "payment"],
    "fee: owed for this settlement; payment: this settlement paid fees",
  ),
  network: NetworkId,
  amount: Amount,
  settled: Described(Amount, "The amount of the settlement"),
  createdAt: Timestamp,
});
export type FeeEntry = Static<typeof FeeEntry>;
export const FeeEntryPage = Type.Object({ ...Page(FeeEntry).properties, ...missingCells });

export const PayFeesQuery = Strict({
  account: Described(AddressInput, "The payee that owes them"),
  network: Type.Optional(Described(NetworkId, "By default the first network of this service")),
  amount: Type.Optional(
    Described(Amount, "USDC; by default what is owed. More is credited to later fees"),
  ),
});
export type PayFeesQuery = Static<typeof PayFeesQuery>;

export const FeesPaid = Type.Object({
  account: AddressOutput,
  network: NetworkId,
  paid: Described(Amount, "By this request"),
  txHash: TxHash,
  owed: Described(Amount, "Still owed"),
  prepaid: Amount,
});
export type FeesPaid = Static<typeof FeesPaid>;

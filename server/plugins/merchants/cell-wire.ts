/** What the cells send to each other about a merchant's settlements. Amounts are digits, and times are text. */
import { Type, type Static, type TProperties } from "typebox";
import { Digits, Id, Nullable, Timestamp } from "../../schemas/common.ts";
import {
  MerchantExportFilters,
  MerchantSettlement,
  MerchantSettlementDetail,
  NewMerchantReceipt,
  Refund,
  RefundRequest,
} from "../../schemas/merchants.ts";
import { PayeeWire } from "../../schemas/cells.ts";
import { CHUNK } from "../cells/lists.ts";
import { MOST_COUNTERS } from "./refusals.ts";
import type { Overview } from "./overview.ts";
import type { ProductRow } from "./products.ts";

export const PATHS = {
  overview: "/api/cells/merchant",
  settlements: "/api/cells/merchant/settlements",
  products: "/api/cells/merchant/products",
  settlement: "/api/cells/merchant/settlement",
  refund: "/api/cells/merchant/refund",
  receipt: "/api/cells/merchant/receipt",
  refusals: "/api/cells/merchant/refusals",
} as const;

/** All counters with the longest URLs. */
export const MOST_REFUSALS_BYTES = 2 * 1024 * 1024;

const Count = Type.Integer();
const Text = Type.String();
const Days = Type.Integer({ minimum: 1, maximum: 90 });
const CountedRefusal = {
  payee: Type.String({ pattern: "^0x[0-9a-f]{40}$" }),
  chainId: Type.Integer(),
  reason: Type.String({ maxLength: 80 }),
  count: Type.Integer({ minimum: 1 }),
};
const most = { maxItems: MOST_COUNTERS };
const Asked = <T extends TProperties>(members: T) => Type.Object({ payee: PayeeWire, ...members });

export const ASKED = {
  overview: Asked({ days: Days }),
  settlements: Asked({
    query: MerchantExportFilters,
    limit: Type.Integer({ minimum: 1, maximum: CHUNK }),
    cursor: Type.Optional(Text),
  }),
  products: Asked({ days: Days, until: Timestamp }),
  settlement: Asked({ id: Id }),
  refund: Asked({ id: Id, request: RefundRequest, merchant: Type.Optional(Text) }),
  receipt: Asked({ id: Id }),
  refusals: Type.Object({
    refusals: Type.Array(
      Type.Object({
        ...CountedRefusal,
        operation: Type.Union([Type.Literal("verify"), Type.Literal("settle")]),
      }),
      most,
    ),
    products: Type.Array(
      Type.Object({
        ...CountedRefusal,
        url: Type.String({ maxLength: 1024 }),
        method: Nullable(Type.String({ maxLength: 16 })),
      }),
      most,
    ),
  }),
};
export type CountedRefusals = Static<typeof ASKED.refusals>;

const Refused = Type.Object({
  code: Text,
  detail: Text,
  extra: Type.Record(Type.String(), Type.Unknown()),
});

export const ANSWERED = {
  overview: Type.Object({
    totals: Type.Object({
      settled: Count,
      volume: Digits,
      pending: Count,
      failed: Count,
      payers: Count,
      refunds: Count,
      refunded: Digits,
    }),
    days: Type.Array(
      Type.Object({
        day: Timestamp,
        settled: Count,
        failed: Count,
        volume: Digits,
        refunded: Digits,
      }),
    ),
    failures: Type.Array(Type.Object({ reason: Text, count: Count, lastAt: Timestamp })),
  }),
  settlements: Type.Object({ items: Type.Array(MerchantSettlement) }),
  products: Type.Object({
    rows: Type.Array(
      Type.Object({
        url: Text,
        method: Text,
        settled: Count,
        volume: Digits,
        refunded: Digits,
        pending: Count,
        failed: Count,
        refused: Count,
        trouble: Count,
        key: Text,
      }),
    ),
  }),
  settlement: Type.Object({ settlement: Nullable(MerchantSettlementDetail) }),
  refund: Type.Object({ refund: Type.Optional(Refund), refused: Type.Optional(Refused) }),
  receipt: Type.Object({
    receipt: Type.Optional(NewMerchantReceipt),
    refused: Type.Optional(Refused),
  }),
  refusals: Type.Object({}),
};
export type Wire = { [Name in keyof typeof ANSWERED]: Static<(typeof ANSWERED)[Name]> } & {
  refused: Static<typeof Refused>;
};

export const overviewWire = ({ totals, days, failures }: Overview): Wire["overview"] => ({
  totals: { ...totals, volume: String(totals.volume), refunded: String(totals.refunded) },
  days: days.map(({ day, volume, refunded, ...counts }) => ({
    ...counts,
    day: day.toISOString(),
    volume: String(volume),
    refunded: String(refunded),
  })),
  failures: failures.map((row) => ({ ...row, lastAt: row.lastAt.toISOString() })),
});

export const readOverviewWire = ({ totals, days, failures }: Wire["overview"]): Overview => ({
  totals: { ...totals, volume: BigInt(totals.volume), refunded: BigInt(totals.refunded) },
  days: days.map(({ day, volume, refunded, ...counts }) => ({
    ...counts,
    day: new Date(day),
    volume: BigInt(volume),
    refunded: BigInt(refunded),
  })),
  failures: failures.map((row) => ({ ...row, lastAt: new Date(row.lastAt) })),
});

export const productsWire = (rows: readonly ProductRow[]): Wire["products"] => ({
  rows: rows.map((row) => ({
    ...row,
    volume: String(row.volume),
    refunded: String(row.refunded),
  })),
});

export const readProductsWire = ({ rows }: Wire["products"]): ProductRow[] =>
  rows.map((row) => ({ ...row, volume: BigInt(row.volume), refunded: BigInt(row.refunded) }));

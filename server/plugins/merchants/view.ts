/** Merchants' data in API form: settlements, the overview per day, and settlements as CSV. */
import type { Static } from "typebox";
import { getAddress } from "viem";
import { formatAtomic, parsePayable } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";
import { parseAddress } from "../../core/foreign-text.ts";
import type {
  Merchant,
  MerchantSettlement,
  MerchantSettlementDetail,
  MerchantExportFilters,
} from "../../schemas/merchants.ts";
import { paymentSchemeOf } from "../../schemes/index.ts";
import { REASONS } from "../../schemes/scheme.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { csvCell, readTime } from "../payments/history.ts";
import { MOST_REFUNDS } from "./refund-store.ts";
import { fixOf } from "./fixes.ts";
import { presentRefund } from "./refunds.ts";
import type { Overview } from "./overview.ts";
import type { DayRow, PaidRow, ReasonRow, RefundRow, SettlementFilter } from "./store.ts";

export function readSettlementFilters(
  query: Static<typeof MerchantExportFilters>,
  networks: readonly NetworkFacts[],
): Omit<SettlementFilter, "page"> {
  const { status, network: name, payer, minimum, payment } = query;
  const network = name === undefined ? undefined : findNetwork(name, networks);
  if (name !== undefined && !network)
    throw refuseField(
      "validation_failed",
      "query.network",
      `must be one of ${networks.map(({ id }) => id).join(", ")}`,
    );
  const address = payer === undefined ? undefined : parseAddress(payer);
  if (address && !address.ok) throw refuseField("invalid_address", "query.payer", address.reason);
  const amount = minimum === undefined ? undefined : parsePayable(minimum);
  if (amount && !amount.ok) throw refuseField("invalid_amount", "query.minimum", amount.reason);
  const from = readTime(query.from, "query.from");
  const to = readTime(query.to, "query.to");
  return {
    ...(status !== undefined && { statuses: statusesOf(status) }),
    ...(network && { chainId: network.chainId }),
    ...(from && { from }),
    ...(to && { to }),
    ...(address?.ok && { payer: address.address }),
    ...(amount?.ok && { minimumAtomic: amount.atomic }),
    ...(payment !== undefined && {
      payment: /^0x/i.test(payment) ? payment.toLowerCase() : payment,
    }),
  };
}

const statusesOf = (text: string): string[] =>
  text.split(",").flatMap((word) => (word === "pending" ? ["queued", "submitted"] : [word]));

export const networkName = (chainId: number): string => `eip155:${chainId}`;

export function presentPaid(row: PaidRow): MerchantSettlement {
  const { terms } = row;
  return {
    id: row.id,
    status: row.status,
    scheme: paymentSchemeOf(row).name,
    network: networkName(row.chainId),
    payer: getAddress(row.from),
    amount: formatAtomic(row.amountAtomic),
    maximum: terms && "maximum" in terms ? formatAtomic(BigInt(terms.maximum)) : null,
    thirdParty: {
      untrusted: true,
      url: withoutQuery(row.resourceUrl),
      method: row.resourceMethod,
      description: row.resourceDescription,
    },
    delivery: row.delivery,
    txHash: row.txHash,
    final: row.isFinal,
    errorReason: row.errorReason,
    errorMessage: row.errorMessage,
    refunded: formatAtomic(row.refundedAtomic),
    refundable: formatAtomic(
      row.isFinal && row.refundCount < MOST_REFUNDS ? row.amountAtomic - row.refundedAtomic : 0n,
    ),
    createdAt: row.createdAt.toISOString(),
    settledAt: row.settledAt?.toISOString() ?? null,
  };
}

/** The build before stored queries. */
export const withoutQuery = (url: string | null): string | null => url?.split("?", 1)[0] ?? null;

export const presentPaidWhole = (
  row: PaidRow,
  refunds: readonly RefundRow[],
  receipt: string | null,
): MerchantSettlementDetail => ({
  ...presentPaid(row),
  receipt,
  refunds: refunds.map((refund) => presentRefund(refund, networkName(refund.chainId))),
});

export const presentTotals = (totals: Overview["totals"]): Merchant["totals"] => ({
  ...totals,
  volume: formatAtomic(totals.volume),
  refunded: formatAtomic(totals.refunded),
});

export const presentDay = (row: DayRow): Merchant["days"][number] => ({
  day: row.day.toISOString(),
  settled: row.settled,
  failed: row.failed,
  volume: formatAtomic(row.volume),
  refunded: formatAtomic(row.refunded),
});

export const presentReason = ({
  reason,
  count,
  lastAt,
}: ReasonRow): Merchant["failures"][number] => ({
  reason,
  message: Object.hasOwn(REASONS, reason) ? REASONS[reason as keyof typeof REASONS] : reason,
  fix: fixOf(reason),
  count,
  lastAt: lastAt.toISOString(),
});

/** Settlements as CSV (RFC 4180), safe for spreadsheets: no cell can start a formula. */
const COLUMNS: readonly [string, (row: MerchantSettlement) => string | null][] = [
  ["createdAt", (row) => row.createdAt],
  ["id", (row) => row.id],
  ["status", (row) => row.status],
  ["scheme", (row) => row.scheme],
  ["network", (row) => row.network],
  ["payer", (row) => row.payer],
  ["amount", (row) => row.amount],
  ["refunded", (row) => row.refunded],
  ["txHash", (row) => row.txHash],
  ["settledAt", (row) => row.settledAt],
  ["final", (row) => String(row.final)],
  ["errorReason", (row) => row.errorReason],
  ["errorMessage", (row) => row.errorMessage],
  ["method", (row) => row.thirdParty.method],
  ["url", (row) => row.thirdParty.url],
  ["description", (row) => row.thirdParty.description],
  ["maximum", (row) => row.maximum],
  ["delivery", (row) => row.delivery],
];

export async function* settlementsCsv(
  chunks: AsyncIterable<MerchantSettlement[]>,
): AsyncGenerator<string> {
  yield `${COLUMNS.map(([name]) => name).join(",")}\r\n`;
  for await (const rows of chunks) yield rows.map(csvLine).join("");
}

const csvLine = (row: MerchantSettlement): string =>
  `${COLUMNS.map(([, read]) => csvCell(read(row) ?? "")).join(",")}\r\n`;

/** Fees in API form, and as CSV. */
import { chargesFees, formatPerMille, MOST_PER_MILLE, type FeeTerms } from "../../core/fees.ts";
import { formatAtomic } from "../../core/money.ts";
import type { FeeAccount, FeeEntry, MerchantFees } from "../../schemas/fees.ts";
import { csvCell } from "../payments/history.ts";
import type { FeeAccountRow, FeeEntryRow } from "./store.ts";

const networkName = (chainId: number): string => `eip155:${chainId}`;

export const presentTerms = (terms: FeeTerms): MerchantFees["terms"] =>
  chargesFees(terms)
    ? {
        perSettlement: formatAtomic(terms.perSettlementAtomic),
        perMille: formatPerMille(terms.partsPerMillion),
        mostPerMille: MOST_PER_MILLE.toString(),
        credit: formatAtomic(terms.creditAtomic),
      }
    : null;

export const presentOwed = (owed: bigint): { owed: string; prepaid: string } => ({
  owed: formatAtomic(owed > 0n ? owed : 0n),
  prepaid: formatAtomic(owed < 0n ? -owed : 0n),
});

export const presentAccount = (row: FeeAccountRow, terms: FeeTerms): FeeAccount => ({
  network: networkName(row.chainId),
  ...presentOwed(row.charged - row.paid),
  charged: formatAtomic(row.charged),
  paid: formatAtomic(row.paid),
  refused: chargesFees(terms) && row.charged - row.paid > terms.creditAtomic,
});

export const presentEntry = (row: FeeEntryRow): FeeEntry => ({
  id: row.id,
  kind: row.kind,
  network: networkName(row.chainId),
  amount: formatAtomic(row.amountAtomic),
  settled: formatAtomic(row.valueAtomic),
  createdAt: row.createdAt.toISOString(),
});

const COLUMNS = ["createdAt", "id", "kind", "network", "amount", "settled"] as const;

export async function* entriesCsv(chunks: AsyncIterable<FeeEntry[]>): AsyncGenerator<string> {
  yield `${COLUMNS.join(",")}\r\n`;
  for await (const entries of chunks) yield entries.map(csvLine).join("");
}

const csvLine = (entry: FeeEntry): string =>
  `${COLUMNS.map((name) => csvCell(entry[name])).join(",")}\r\n`;

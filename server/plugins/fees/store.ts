/** Fees in the database: what a payee owes on a network, and the entries behind it. */
import type { Address } from "viem";
import { Coalescer } from "../../core/shared-answers.ts";
import type { PageRequest, Place } from "../../core/paging.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { atomicOf, placeOf, readKeyset, type Db } from "../../infra/db/prisma.ts";

/** A payee on a network; in lower case. */
export interface FeeKey {
  chainId: number;
  account: Address;
}

export interface FeeAccountRow {
  chainId: number;
  charged: bigint;
  paid: bigint;
}

export interface FeeEntryRow extends Place {
  kind: "fee" | "payment";
  chainId: number;
  amountAtomic: bigint;
  /** Of the settlement. */
  valueAtomic: bigint;
  createdAt: Date;
}

/** Negative if it paid in advance. One row by its key, in one statement for all concurrent callers. */
export function owedReader(sql: Sql): (key: FeeKey) => Promise<bigint> {
  const reads = new Coalescer<FeeKey, bigint>(
    async (keys) => {
      // SQL: part of each verify and settle where a fee is set.
      const { rows } = await sql.query<{ place: bigint; owed: bigint }>({
        name: "fees-owed",
        text: `SELECT place, charged - paid AS owed FROM fee_accounts
                 JOIN unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS wanted (chain_id, account, place)
                USING (chain_id, account)`,
        values: [keys.map(({ chainId }) => chainId), keys.map(({ account }) => account)],
      });
      const owed = new Map(rows.map((row) => [Number(row.place), row.owed]));
      return keys.map((_, index) => owed.get(index + 1) ?? 0n);
    },
    { maxBatch: 100, maxInFlight: 1 },
  );
  return (key) => reads.fetch(key);
}

/** A contract account counts only on its own chain; `chainId` 0 is a plain key. */
const of = ({ address, chainId }: { address: Address; chainId: number }) => ({
  account: address,
  ...(chainId === 0 ? {} : { chainId: BigInt(chainId) }),
});

export async function readFeeAccounts(
  db: Db,
  payee: { address: Address; chainId: number },
  networks: readonly number[],
): Promise<FeeAccountRow[]> {
  const chainIds = networks.filter((id) => payee.chainId === 0 || id === payee.chainId).map(BigInt);
  const rows = await db.feeAccount.findMany({
    where: { account: payee.address, chainId: { in: chainIds } },
    orderBy: { chainId: "asc" },
  });
  return rows.map(({ chainId, charged, paid }) => ({
    chainId: Number(chainId),
    charged: atomicOf(charged),
    paid: atomicOf(paid),
  }));
}

export async function listFeeEntries(
  db: Db,
  payee: { address: Address; chainId: number },
  page: PageRequest,
): Promise<FeeEntryRow[]> {
  const rows = await readKeyset(page, (where, order) =>
    db.feeEntry.findMany({ where: { AND: [of(payee), where] }, ...order }),
  );
  return rows.map((row) => ({
    ...placeOf(row),
    kind: row.kind as FeeEntryRow["kind"],
    chainId: Number(row.chainId),
    amountAtomic: atomicOf(row.amount),
    valueAtomic: atomicOf(row.value),
    createdAt: row.createdAt,
  }));
}

export interface FeeTotals {
  chainId: bigint;
  charged: number;
  paid: number;
  owed: number;
  refused: number;
}

/** For the metrics: in USDC. */
export async function readFeeTotals(sql: Sql, creditAtomic: bigint): Promise<FeeTotals[]> {
  // SQL: filtered sums.
  const { rows } = await sql.query<FeeTotals>(
    `SELECT chain_id AS "chainId", (sum(charged) / 1000000)::float8 AS charged, (sum(paid) / 1000000)::float8 AS paid,
            (sum(greatest(charged - paid, 0)) / 1000000)::float8 AS owed,
            count(*) FILTER (WHERE charged - paid > $1)::int AS refused
       FROM fee_accounts GROUP BY chain_id`,
    [String(creditAtomic)],
  );
  return rows;
}

/** Fees in the database: what a payee owes on a network, and the entries behind it. */
import type { Address } from "viem";
import { Coalescer } from "../../core/shared-answers.ts";
import type { PageRequest, Place } from "../../core/paging.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { atomicOf, placeOf, type Db, type readKeyset } from "../../infra/db/prisma.ts";

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
        text: `SELECT place, sum(f.charged - f.paid) AS owed
                 FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS wanted (chain_id, account, place)
                CROSS JOIN LATERAL (
                  SELECT a.charged, a.paid FROM fee_accounts a WHERE a.chain_id = wanted.chain_id AND a.account = wanted.account
                  UNION ALL
                  SELECT c.charged, c.paid FROM cell_fee_accounts c
                   WHERE c.chain_id = wanted.chain_id AND c.account = wanted.account) AS f
                GROUP BY place`,
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
  const where = { account: payee.address, chainId: { in: chainIds } };
  const [here, elsewhere] = await Promise.all([
    db.feeAccount.findMany({ where }),
    db.cellFeeAccount.findMany({ where }),
  ]);
  const accounts = new Map<number, FeeAccountRow>();
  for (const row of [...here, ...elsewhere]) {
    const chainId = Number(row.chainId);
    const { charged, paid } = accounts.get(chainId) ?? { charged: 0n, paid: 0n };
    accounts.set(chainId, {
      chainId,
      charged: charged + atomicOf(row.charged),
      paid: paid + atomicOf(row.paid),
    });
  }
  return [...accounts.values()].toSorted((left, right) => left.chainId - right.chainId);
}

export async function listFeeEntries(
  db: Db,
  payee: { address: Address; chainId: number },
  page: PageRequest,
  order: typeof readKeyset,
): Promise<FeeEntryRow[]> {
  const rows = await order(page, (where, order) =>
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

/** For the metrics: in USDC. What this cell charged and was paid; what is owed in all cells. */
export async function readFeeTotals(sql: Sql, creditAtomic: bigint): Promise<FeeTotals[]> {
  // SQL: filtered sums.
  const { rows } = await sql.query<FeeTotals>(
    `SELECT chain_id AS "chainId", (coalesce(sum(charged), 0) / 1000000)::float8 AS charged, (coalesce(sum(paid), 0) / 1000000)::float8 AS paid,
            (sum(greatest(owing, 0)) / 1000000)::float8 AS owed, count(*) FILTER (WHERE owing > $1)::int AS refused
       FROM (SELECT chain_id, account, sum(charged) FILTER (WHERE is_own) AS charged, sum(paid) FILTER (WHERE is_own) AS paid,
                    sum(charged - paid) AS owing
               FROM (SELECT chain_id, account, charged, paid, TRUE AS is_own FROM fee_accounts
                     UNION ALL SELECT chain_id, account, charged, paid, FALSE FROM cell_fee_accounts) AS every_cell
              GROUP BY chain_id, account) AS accounts
      GROUP BY chain_id`,
    [String(creditAtomic)],
  );
  return rows;
}

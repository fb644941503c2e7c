/**
 * Gas budgets in the database: the accounts that pay for gas, their limits, what is left, and the errors when
 * nothing is left.
 */
import { DatabaseError } from "pg";
import { CANCELS, type GasLimits } from "../../core/gas.ts";
import { ApiError } from "../../errors.ts";
import { GAS_EXHAUSTED, type Sql } from "../../infra/db/pool.ts";

/** The configuration of the process that started last applies to all. */
export async function writeGasLimits(sql: Sql, chainId: number, limits: GasLimits): Promise<void> {
  await sql.query(
    `INSERT INTO gas_limits (chain_id, name, per_day)
     SELECT $1, name, per_day FROM unnest($2::text[], $3::numeric[]) AS l (name, per_day) ORDER BY name
     ON CONFLICT (chain_id, name) DO UPDATE SET per_day = EXCLUDED.per_day
      WHERE gas_limits.per_day <> EXCLUDED.per_day`,
    [chainId, Object.keys(limits), Object.values(limits).map(String)],
  );
}

export interface GasAccount {
  account: string;
  perDay: bigint;
  /** Left in the budget now. */
  left: bigint;
  held: bigint;
  used: bigint;
}

/** The named accounts, including those never charged. */
export async function readGasAccounts(
  sql: Sql,
  chainId: number,
  accounts: readonly string[],
): Promise<GasAccount[]> {
  const { rows } = await sql.query<GasAccount>(
    `SELECT n.account, l.per_day AS "perDay", coalesce(g.held, 0) AS held, coalesce(g.used, 0) AS used,
            greatest(floor(l.per_day * (1 - extract(epoch FROM
              greatest(coalesce(g.full_at, '-infinity'), statement_timestamp()) - statement_timestamp()) / 86400)), 0) AS left
       FROM unnest($2::text[]) AS n (account)
       JOIN gas_limits l ON l.chain_id = $1 AND l.name = split_part(n.account, ':', 1)
       LEFT JOIN gas_accounts g ON g.chain_id = $1 AND g.account = n.account`,
    [chainId, accounts],
  );
  return rows;
}

/**
 * Settlements that the database refused because their gas budget is used up, by id. Empty for every other
 * error.
 */
export function gasRefusals(error: unknown): Map<string, ApiError> {
  if (!(error instanceof DatabaseError) || error.code !== GAS_EXHAUSTED) return new Map();
  const refused = JSON.parse(error.detail ?? "[]") as {
    id: string;
    accounts: string[];
    retryMs: number | null;
  }[];
  return new Map(
    refused.map(({ id, accounts, retryMs }) => [
      id,
      gasExhausted({
        short: accounts[0]?.split(":", 1)[0] ?? "network",
        availableAt: retryMs === null ? null : new Date(Date.now() + retryMs),
      }),
    ]),
  );
}

const WHOSE: Record<string, string> = {
  strangers: "third parties' payments",
  merchants: "merchants",
  merchant: "this merchant",
  agents: "agents",
  withdrawals: "withdrawals",
  payer: "this payer",
  payee: "this payee",
  owner: "this owner's agents",
  withdrawer: "this owner's withdrawals",
};

/** One sentence for people and programs: whose budget is used up, and when it is enough again. */
export function gasExhausted(args: { short: string; availableAt: Date | null }): ApiError {
  const { short, availableAt } = args;
  const whose = WHOSE[short] ?? short;
  return new ApiError("gas_budget_exhausted", {
    detail:
      availableAt === null
        ? `The gas for this payment costs more than the daily gas budget of ${whose}. Nothing was sent.`
        : `The gas budget of ${whose} is used up. It is enough for this payment again at ${availableAt.toISOString()}. Nothing was sent.`,
    extra: { availableAt: availableAt?.toISOString() ?? null },
    ...(availableAt && {
      headers: {
        "retry-after": String(Math.max(Math.ceil((availableAt.getTime() - Date.now()) / 1_000), 1)),
      },
    }),
  });
}

type CancelDecision = { decision: "cancel" | "lapse"; validBefore: bigint };

/**
 * Marks an agent's own x402 authorization that is not submitted yet for cancellation, or returns that it is
 * left to expire.
 */
export async function wantCancel(
  sql: Sql,
  key: { from: string; chainId: number; asset: string; nonce: string },
  cancelSignature: `0x${string}`,
): Promise<CancelDecision | undefined> {
  const { rows } = await sql.query<CancelDecision>(
    'SELECT decision, valid_before AS "validBefore" FROM purser_cancel_wanted($1, $2, $3, $4, $5)',
    [
      key.from.toLowerCase(),
      key.chainId,
      key.asset.toLowerCase(),
      key.nonce.toLowerCase(),
      Buffer.from(cancelSignature.slice(2), "hex"),
    ],
  );
  return rows[0];
}

/** The gas limits of one network, as stored in `gas_limits`. */
export const limitsOf = (
  budget: Omit<GasLimits, typeof CANCELS>,
  forcedCancelsPerDay: bigint,
): GasLimits => ({ ...budget, [CANCELS]: forcedCancelsPerDay });

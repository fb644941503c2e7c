/** A refund as rows: what is left of its settlement, and its own authorization, in one transaction. */
import type { SignedAuthorization } from "../../core/authorization.ts";
import { inTransaction, type Pool, type Sql } from "../../infra/db/pool.ts";
import { gasRefusals } from "../settlement/gas-store.ts";
import type { Settlement } from "../settlement/types.ts";
import type { Payee } from "./store.ts";

/** Each costs gas: a payment is not given back in a thousand crumbs. */
export const MOST_REFUNDS = 20;

/** Tests stop the process at one of these; `committed` is the first moment at which anything of it exists. */
export type RefundFault = "locked" | "recorded" | "accepted" | "committed";

export interface RefundToMake {
  id: string;
  owner: Payee & { id: string };
  settlementId: string;
  authorization: SignedAuthorization;
  /** Of the number that is due, the one its nonce is made of; undefined where it is neither that nor one soon after. */
  numberOf: (due: number) => number | undefined;
  /** The credential at whose gas it goes; strangers have none. */
  merchant: string | undefined;
}

export type RefundMade =
  | { outcome: "made" }
  /** The very same authorization was taken before. */
  | { outcome: "known" }
  | { outcome: "gone" | "out_of_turn" | "other_use" }
  | { outcome: "too_much"; leftAtomic: bigint };

export interface MakingRefunds {
  pool: Pool;
  settlement: Pick<Settlement, "accept">;
  fault: (point: RefundFault) => Promise<void>;
}

/**
 * Takes the refund's part and hands its authorization to the engine, or does neither: there is no step between the two
 * at which a process could die. Whoever refunds the same settlement waits here for its row's lock.
 */
export async function makeRefund(deps: MakingRefunds, asked: RefundToMake): Promise<RefundMade> {
  try {
    const made = await inTransaction(deps.pool, async (sql) => {
      const result = await reserve(deps, sql, asked);
      // Whatever was written for one that is not made is undone.
      if (result.outcome !== "made") throw new NotMade(result);
      return result;
    });
    await deps.fault("committed");
    return made;
  } catch (error) {
    if (error instanceof NotMade) return error.result;
    throw gasRefusals(error).get(asked.id) ?? error;
  }
}

class NotMade extends Error {
  readonly result: RefundMade;
  constructor(result: RefundMade) {
    super(result.outcome);
    this.result = result;
  }
}

async function reserve(deps: MakingRefunds, sql: Sql, asked: RefundToMake): Promise<RefundMade> {
  const { owner, authorization } = asked;
  // SQL: the lock that makes concurrent refunds of one settlement come one after the other.
  const { rows: held } = await sql.query<{ value: bigint }>(
    `SELECT value FROM settlements
      WHERE id = $1 AND to_address = $2 AND ($3::bigint = 0 OR chain_id = $3)
        AND (kind = 'facilitated' OR (kind = 'x402' AND relay))
        AND status = 'settled' AND final_at IS NOT NULL
        FOR UPDATE`,
    [asked.settlementId, owner.address, owner.chainId],
  );
  const settled = held[0];
  if (!settled) return { outcome: "gone" };
  await deps.fault("locked");
  // SQL: under that lock; a new statement, so that it sees what others committed while this one waited.
  const { rows } = await sql.query<{ nonce: string; value: bigint; number: number; taken: bigint }>(
    `SELECT r.nonce, r.value, r.number,
            CASE WHEN s.status IN ('failed', 'expired') AND s.final_at IS NOT NULL THEN 0 ELSE r.value END AS taken
       FROM refunds r JOIN settlements s USING (from_address, chain_id, asset, nonce)
      WHERE r.settlement_id = $1`,
    [asked.settlementId],
  );
  const same = rows.find(({ nonce }) => nonce === authorization.nonce);
  if (same) return { outcome: same.value === authorization.value ? "known" : "out_of_turn" };
  const number = asked.numberOf(rows.reduce((most, row) => Math.max(most, row.number + 1), 0));
  if (number === undefined) return { outcome: "out_of_turn" };
  if (rows.length >= MOST_REFUNDS) return { outcome: "too_much", leftAtomic: 0n };
  const leftAtomic = settled.value - rows.reduce((sum, { taken }) => sum + taken, 0n);
  if (authorization.value > leftAtomic) return { outcome: "too_much", leftAtomic };
  // SQL: in the transaction that holds the lock.
  await sql.query(
    `INSERT INTO refunds (id, owner_id, settlement_id, number, from_address, chain_id, asset, nonce, value)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [
      asked.id,
      owner.id,
      asked.settlementId,
      number,
      authorization.from,
      authorization.chainId,
      authorization.asset,
      authorization.nonce,
      String(authorization.value),
    ],
  );
  await deps.fault("recorded");
  const { created } = await deps.settlement.accept(sql, {
    id: asked.id,
    kind: "refund",
    agentId: null,
    authorization,
    relay: true,
    ...(asked.merchant !== undefined && { merchant: asked.merchant }),
  });
  await deps.fault("accepted");
  // Presented to settle as a payment before, it is that payment, and follows other rules.
  return { outcome: created ? "made" : "other_use" };
}

/** Seconds of the database's clock, which judges all times. */
export async function databaseSeconds(sql: Sql): Promise<bigint> {
  // SQL: the database's clock.
  const { rows } = await sql.query<{ now: bigint }>(
    "SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now",
  );
  return rows[0]?.now ?? 0n;
}

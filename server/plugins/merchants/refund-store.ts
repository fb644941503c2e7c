/** Stores a refund: reserves its part of the settlement, and accepts its authorization, in one transaction. */
import type { SignedAuthorization } from "../../core/authorization.ts";
import { inTransaction, type Pool, type Sql } from "../../infra/db/pool.ts";
import { gasRefusals } from "../settlement/gas-store.ts";
import type { Settlement } from "../settlement/types.ts";
import type { Payee } from "./store.ts";

/** Each refund costs gas, so a payment cannot be refunded in a thousand small parts. */
export const MOST_REFUNDS = 20;

/** Points at which tests stop the process; `committed` is the first moment at which the refund exists. */
export type RefundFault = "locked" | "recorded" | "accepted" | "committed";

export interface RefundToMake {
  id: string;
  /** `id`: null if the merchant's account is in another cell. */
  owner: Payee & { id: string | null };
  settlementId: string;
  authorization: SignedAuthorization;
  /**
   * Given the number that is due, returns the number that the authorization's nonce was derived from; undefined if it
   * is neither that nor one soon after.
   */
  numberOf: (due: number) => number | undefined;
  /** The merchant whose gas share is charged; undefined for third parties. */
  merchant: string | undefined;
}

export type RefundMade =
  | { outcome: "made" }
  /** The same authorization was accepted before. */
  | { outcome: "known" }
  | { outcome: "gone" | "out_of_turn" | "other_use" }
  | { outcome: "too_much"; leftAtomic: bigint };

interface MakingRefunds {
  pool: Pool;
  settlement: Pick<Settlement, "accept">;
  fault: (point: RefundFault) => Promise<void>;
}

/**
 * Reserves the refund's amount and passes its authorization to the settlement engine, or does neither: there is no step
 * in between at which a process could die. Concurrent refunds of the same settlement wait for its row's lock.
 */
export async function makeRefund(deps: MakingRefunds, refund: RefundToMake): Promise<RefundMade> {
  try {
    const made = await inTransaction(deps.pool, async (sql) => {
      const result = await reserve(deps, sql, refund);
      // If the refund is not made, all its writes are rolled back.
      if (result.outcome !== "made") throw new NotMade(result);
      return result;
    });
    await deps.fault("committed");
    return made;
  } catch (error) {
    if (error instanceof NotMade) return error.result;
    throw gasRefusals(error).get(refund.id) ?? error;
  }
}

class NotMade extends Error {
  readonly result: RefundMade;
  constructor(result: RefundMade) {
    super(result.outcome);
    this.result = result;
  }
}

async function reserve(deps: MakingRefunds, sql: Sql, refund: RefundToMake): Promise<RefundMade> {
  const { owner, authorization } = refund;
  // SQL: the lock that serializes concurrent refunds of one settlement.
  const { rows: held } = await sql.query<{ value: bigint }>(
    `SELECT value FROM settlements
      WHERE id = $1 AND to_address = $2 AND ($3::bigint = 0 OR chain_id = $3)
        AND (kind = 'facilitated' OR (kind = 'x402' AND relay))
        AND status = 'settled' AND final_at IS NOT NULL
        FOR UPDATE`,
    [refund.settlementId, owner.address, owner.chainId],
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
    [refund.settlementId],
  );
  const same = rows.find(({ nonce }) => nonce === authorization.nonce);
  if (same) return { outcome: same.value === authorization.value ? "known" : "out_of_turn" };
  const number = refund.numberOf(rows.reduce((most, row) => Math.max(most, row.number + 1), 0));
  if (number === undefined) return { outcome: "out_of_turn" };
  if (rows.length >= MOST_REFUNDS) return { outcome: "too_much", leftAtomic: 0n };
  const leftAtomic = settled.value - rows.reduce((sum, { taken }) => sum + taken, 0n);
  if (authorization.value > leftAtomic) return { outcome: "too_much", leftAtomic };
  // SQL: in the transaction that holds the lock.
  await sql.query(
    `INSERT INTO refunds (id, owner_id, settlement_id, number, from_address, chain_id, asset, nonce, value)
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [
      refund.id,
      owner.id,
      refund.settlementId,
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
    id: refund.id,
    kind: "refund",
    agentId: null,
    authorization,
    relay: true,
    ...(refund.merchant !== undefined && { merchant: refund.merchant }),
  });
  await deps.fault("accepted");
  // If it was submitted to settle as a payment before, it is that payment, and other rules apply.
  return { outcome: created ? "made" : "other_use" };
}

/** The seconds of the database's clock, which decides all times. */
export async function databaseSeconds(sql: Sql): Promise<bigint> {
  // SQL: the database's clock.
  const { rows } = await sql.query<{ now: bigint }>(
    "SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now",
  );
  return rows[0]?.now ?? 0n;
}

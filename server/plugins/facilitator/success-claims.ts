/**
 * Which settlements are known, and who was told of their success. Each answer is one statement, so that
 * replicas agree by the row itself; callers that ask at the same time share it.
 */
import type { TellingStore } from "./settle.ts";
import type { SettlementKey } from "../../core/authorization.ts";
import type { SettlementRow } from "../settlement/types.ts";
import { Coalescer } from "../../infra/chain/coalesced-reads.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { toRow, type SettlementRecord } from "../settlement/store.ts";

const SHARED = { maxBatch: 100, maxInFlight: 2 };
/** Keys as four arrays, and the join that finds their rows. */
const BY_KEYS = `unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS wanted (from_address, chain_id, asset, nonce)
  USING (from_address, chain_id, asset, nonce)`;

const parts = ({ from, chainId, asset, nonce }: SettlementKey) =>
  [from.toLowerCase(), String(chainId), asset.toLowerCase(), nonce.toLowerCase()] as const;
const nameOf = (key: SettlementKey): string => parts(key).join(" ");
const columns = (keys: readonly SettlementKey[]): string[][] =>
  [0, 1, 2, 3].map((column) => keys.map((key) => parts(key)[column] ?? ""));

export function settlementTelling(sql: Sql): TellingStore {
  const found = new Coalescer<SettlementKey, SettlementRow | undefined>(async (keys) => {
    // SQL: every settle asks it; one statement for all who ask together.
    const { rows } = await sql.query<SettlementRecord>(
      `SELECT settlements.* FROM settlements JOIN ${BY_KEYS}`,
      columns(keys),
    );
    const byName = new Map(rows.map(toRow).map((row) => [nameOf(row.authorization), row] as const));
    return keys.map((key) => byName.get(nameOf(key)));
  }, SHARED);

  const claims = new Coalescer<SettlementKey, boolean>(async (keys) => {
    // SQL: locks and claims in one statement, for all who ask together.
    // The same payment twice in one statement is told once: the first of them has it.
    const { rows } = await sql.query<SettlementRecord>(
      `WITH mine AS (
         SELECT settlements.from_address, settlements.chain_id, settlements.asset, settlements.nonce
           FROM settlements JOIN ${BY_KEYS}
          WHERE success_told_at IS NULL
          ORDER BY settlements.from_address, settlements.nonce FOR UPDATE OF settlements)
       UPDATE settlements SET success_told_at = clock_timestamp() FROM mine
        WHERE settlements.from_address = mine.from_address AND settlements.chain_id = mine.chain_id
          AND settlements.asset = mine.asset AND settlements.nonce = mine.nonce
          AND settlements.success_told_at IS NULL
       RETURNING settlements.*`,
      columns(keys),
    );
    const fresh = new Set(rows.map((record) => nameOf(toRow(record).authorization)));
    return keys.map((key) => fresh.delete(nameOf(key)));
  }, SHARED);

  return {
    find: (key) => found.ask(key),
    claimSuccess: (row) => claims.ask(row.authorization),
    async wasTold(row) {
      // SQL: as the two above, by the same key of four columns.
      const { rows } = await sql.query<{ told: boolean }>(
        `SELECT success_told_at IS NOT NULL AS told FROM settlements JOIN ${BY_KEYS}`,
        columns([row.authorization]),
      );
      return rows[0]?.told ?? false;
    },
  };
}

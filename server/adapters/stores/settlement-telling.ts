/** Who was told of a settlement's success. Each answer is one statement: replicas agree by the row itself. */
import type { TellingStore } from "../../domain/facilitator/settle-desk.ts";
import type { SettlementRow } from "../../domain/settlement/types.ts";
import type { Sql } from "../db/pool.ts";

const BY_KEY = "from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce = $4";
const keyOf = ({ authorization: { from, chainId, asset, nonce } }: SettlementRow): unknown[] => [
  from.toLowerCase(),
  String(chainId),
  asset.toLowerCase(),
  nonce.toLowerCase(),
];

export function settlementTelling(sql: Sql): TellingStore {
  return {
    async claimSuccess(row) {
      const { rowCount } = await sql.query(
        `UPDATE settlements SET success_told_at = clock_timestamp() WHERE ${BY_KEY} AND success_told_at IS NULL`,
        keyOf(row),
      );
      return rowCount === 1;
    },
    async wasTold(row) {
      const { rows } = await sql.query<{ told: boolean }>(
        `SELECT success_told_at IS NOT NULL AS told FROM settlements WHERE ${BY_KEY}`,
        keyOf(row),
      );
      return rows[0]?.told ?? false;
    },
  };
}

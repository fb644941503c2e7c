/** Reads the facts for the balance, floor and gas rules, for many wallets. */
import type { Address } from "viem";
import type { Sql } from "../../infra/db/pool.ts";
import type { WalletFacts } from "./available.ts";
import { readFacts } from "./rules/index.ts";

export interface WalletQuery {
  agentId: string;
  chainId: number;
  asset: Address;
  balance: { atomic: bigint; blockNumber: bigint };
  gasHold: bigint;
}

/** The wallets' facts by agent, as a decision would see them now. */
export async function readWallets(
  sql: Sql,
  queries: readonly WalletQuery[],
  floorAtomic: bigint,
): Promise<Map<string, WalletFacts>> {
  const { rows } = await sql.query<{
    agentId: string;
    balance: bigint;
    outstanding: bigint;
    gas: object;
    isBehind: boolean;
  }>(
    `SELECT a.id AS "agentId", w.balance, purser_outstanding(a.id, w.chain_id, w.block) AS outstanding,
            purser_gas_reserve(w.chain_id, 'agents', 'owner:' || a.owner_id, w.gas_hold, $7, $7, TRUE) AS gas,
            EXISTS (SELECT 1 FROM ledger_cursors c WHERE c.chain_id = w.chain_id AND c.asset = w.asset
                      AND c.hold_until_block IS NOT NULL) AS "isBehind"
       FROM unnest($1::text[], $2::bigint[], $3::text[], $4::numeric[], $5::bigint[], $6::numeric[])
              AS w (id, chain_id, asset, balance, block, gas_hold)
       JOIN agents a ON a.id = w.id`,
    [
      queries.map(({ agentId }) => agentId),
      queries.map(({ chainId }) => chainId),
      queries.map(({ asset }) => asset.toLowerCase()),
      queries.map(({ balance }) => String(balance.atomic)),
      queries.map(({ balance }) => String(balance.blockNumber)),
      queries.map(({ gasHold }) => String(gasHold)),
      String(floorAtomic),
    ],
  );
  return new Map(
    rows.map(({ agentId, gas, ...wallet }) => {
      const { floor, gasShort } = readFacts(gas);
      return [agentId, { ...wallet, floor, gasShort }];
    }),
  );
}

// What tests of channels read: of our rows, and of the chain.
import type { Test } from "tap";
import { CHANNELS, CHANNELS_ABI } from "../helpers/batch-settlement.ts";
import { until } from "../helpers/until.ts";
import type { Market } from "./market.ts";

type Has<Members extends keyof Market> = Pick<Market, Members>;

export const channelIn = (body: Record<string, unknown>) =>
  body["channel"] as { id: string; balance: string; charged: string };

export async function onChain({ chain }: Has<"chain">, id: string) {
  const [balance, claimed] = await chain.publicClient.readContract({
    address: CHANNELS,
    abi: CHANNELS_ABI,
    functionName: "channels",
    args: [id as `0x${string}`],
  });
  return { balance, claimed };
}

export interface ChannelRow {
  status: string;
  reason: string | null;
  ceiling: bigint;
  charged: bigint;
  busy_payment: string | null;
}

export async function channelOf(
  { database, agent }: Has<"database" | "agent">,
  id: string,
): Promise<ChannelRow | undefined> {
  const { rows } = await database.pool.query<Record<keyof ChannelRow, string>>(
    "SELECT status, reason, ceiling::text, charged::text, busy_payment FROM channels WHERE agent_id = $1 AND id = $2",
    [agent.id, id],
  );
  const [row] = rows;
  return row && { ...row, ceiling: BigInt(row.ceiling), charged: BigInt(row.charged) };
}

/** What counts as spent in a day, as decisions read it. */
export async function counted({ database, agent }: Has<"database" | "agent">): Promise<bigint> {
  const { rows } = await database.pool.query<{ sum: string }>(
    "SELECT window_sum::text AS sum FROM agents WHERE id = $1",
    [agent.id],
  );
  return BigInt(rows[0]?.sum ?? "-1");
}

/** The window is the sum of the counted payments, and the part of it that went through channels is what was signed. */
export async function expectWholeLedger(t: Test, made: Has<"database" | "agent">): Promise<void> {
  const { rows } = await made.database.pool.query<Record<string, string>>(
    `SELECT a.window_sum::text AS sum,
            (SELECT coalesce(sum(p.amount), 0)::text FROM payments p
              WHERE p.agent_id = a.id AND p.kind IN ('spend', 'x402')
                AND p.status IN ('reserved', 'submitted', 'settled', 'unknown')) AS payments,
            (SELECT coalesce(sum(p.amount), 0)::text FROM payments p
              WHERE p.agent_id = a.id AND p.ceiling IS NOT NULL
                AND p.status IN ('submitted', 'settled', 'unknown')) AS growth,
            (SELECT coalesce(sum(c.ceiling), 0)::text FROM channels c WHERE c.agent_id = a.id) AS ceilings
       FROM agents a WHERE a.id = $1`,
    [made.agent.id],
  );
  const [row] = rows;
  t.equal(row?.["sum"], row?.["payments"], "the window is the sum of the ledger");
  t.equal(row?.["growth"], row?.["ceilings"], "what counts as spent is exactly what was signed");
}

/** Deposits whose outcome is known. */
export const depositsEnded = ({ database, agent }: Has<"database" | "agent">): Promise<void> =>
  until(async () => {
    const { rows } = await database.pool.query(
      "SELECT 1 FROM payments WHERE agent_id = $1 AND kind = 'deposit' AND outstanding",
      [agent.id],
    );
    return rows.length === 0;
  }, 20_000);

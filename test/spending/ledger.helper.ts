// The invariants at the end of every spending test: no overspend, one settlement per payment, ledger equals chain.
import { randomBytes } from "node:crypto";
import type { Test } from "tap";
import type { Address } from "viem";
import type { IdempotencyRef, ReserveResult } from "../../server/plugins/guardrails/types.ts";
import type { TestApp } from "../helpers/app.ts";
import type { NewTestAgent } from "../helpers/owner.ts";
import { expectGasIsAccounted } from "../helpers/engine-invariants.ts";

export async function usdcOf({ chain }: Pick<TestApp, "chain">, account: Address): Promise<bigint> {
  return chain.usdcOf(account);
}

export async function statusesOf(
  { database }: Pick<TestApp, "database">,
  agentId: string,
): Promise<Record<string, number>> {
  const { rows } = await database.pool.query<{ status: string; count: number }>(
    "SELECT status, sum(1 + repeats)::int AS count FROM payments WHERE agent_id = $1 GROUP BY status",
    [agentId],
  );
  return Object.fromEntries(rows.map((row) => [row.status, row.count]));
}

/** Call it when every payment is final. */
export async function checkLedger(
  t: Test,
  ctx: Pick<TestApp, "database" | "chain">,
  args: { agentId: string; payee: Address },
): Promise<void> {
  const { rows } = await ctx.database.pool.query<{ settled: string; window: string; sum: string }>(
    `SELECT (SELECT COALESCE(sum(amount), 0) FROM payments
              WHERE agent_id = a.id AND status = 'settled' AND counterparty = $2)::text AS settled,
            a.window_sum::text AS window,
            (SELECT COALESCE(sum(amount), 0) FROM payments
              WHERE agent_id = a.id AND kind IN ('spend', 'x402') AND created_at > a.window_tail_at
                AND status IN ('reserved', 'submitted', 'settled', 'unknown'))::text AS sum
       FROM agents a WHERE a.id = $1`,
    [args.agentId, args.payee.toLowerCase()],
  );
  const row = rows[0];
  t.equal(row?.settled, String(await usdcOf(ctx, args.payee)), "the ledger equals the chain");
  t.equal(row?.window, row?.sum, "the window's sum equals the sum of the payments that it counts");
  const doubled = await ctx.database.pool.query(
    `SELECT p.id FROM payments p LEFT JOIN settlements s ON s.id = p.id
      WHERE p.agent_id = $1 AND p.status = 'settled' AND p.kind <> 'incoming'
      GROUP BY p.id HAVING count(s.id) <> 1`,
    [args.agentId],
  );
  t.equal(doubled.rowCount, 0, "one settlement per settled payment");
  await expectGasIsAccounted(t, ctx.database.pool);
}

/** Leaves a reservation like that of a process that died before signing. */
export const reserveUnsigned = (
  { app, chain }: Pick<TestApp, "app" | "chain">,
  agent: NewTestAgent,
  more: { to: Address; amountAtomic: bigint; idempotency?: IdempotencyRef },
): Promise<ReserveResult> =>
  app.guardrails.reserve({
    agentId: agent.id,
    apiKeyId: agent.keyId,
    walletAddress: agent.walletAddress,
    kind: "spend",
    chainId: chain.chainId,
    asset: chain.usdc,
    nonce: `0x${randomBytes(32).toString("hex")}`,
    validForSeconds: 120,
    requestId: null,
    balance: { atomic: 10n ** 9n, blockNumber: 0n },
    ...more,
  });

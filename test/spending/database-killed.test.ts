// Goal: a reservation commits without waiting for the disk. When Postgres is killed at that moment, nothing that was signed for a
// lost reservation is accepted, its budget is free, and an accepted payment has its reservation on disk.
import t from "tap";
import { isReservationGone, reserve } from "../../server/plugins/guardrails/store.ts";
import { newId } from "../../server/core/ids.ts";
import { Server } from "../operations/cluster.ts";
import { CHAIN_ID, PAYEE, reserveRequest, seedAgent } from "./guardrails-sql.helper.ts";

t.test("Postgres is killed right after a reservation", async (t) => {
  // What no commit waits for stays in memory for ten seconds.
  const server = await Server.make(t, ["wal_writer_delay=10s"]);
  const { pool } = server;
  const agent = await seedAgent(pool, { dailyLimit: 10n });

  const sign = async () => {
    const request = reserveRequest(agent, 4n);
    const paymentId = newId("pay");
    const { outcome } = await reserve(pool, { ...request, paymentId, dryRun: false });
    t.equal(outcome, "reserved");
    return { request, paymentId };
  };
  const accept = ({ request, paymentId }: Awaited<ReturnType<typeof sign>>) =>
    pool.query(
      `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, agent_id, to_address, value, valid_after,
         valid_before, signature, relay, status)
       VALUES ($1, $2, $3, $4, $5, 'spend', $6, $7, 4, 0, 4000000000, '\\x01', TRUE, 'queued')`,
      [
        agent.walletAddress,
        CHAIN_ID,
        request.asset,
        request.nonce,
        paymentId,
        agent.agentId,
        PAYEE,
      ],
    );
  const stored = async () => {
    const { rows } = await pool.query<{ id: string; status: string }>(
      "SELECT id, status FROM payments ORDER BY created_at",
    );
    const { rows: sums } = await pool.query<{ sum: string }>(
      "SELECT window_sum::text AS sum FROM agents",
    );
    return { payments: rows, spent: sums[0]?.sum };
  };

  const accepted = await sign();
  await accept(accepted);
  const lost = await sign();
  t.equal((await stored()).spent, "8");
  await server.kill();
  await server.restart();
  t.same(
    await stored(),
    { payments: [{ id: accepted.paymentId, status: "submitted" }], spent: "4" },
    "the accepted payment is whole, and the other is gone with its budget",
  );
  t.ok(await accept(lost).then(() => false, isReservationGone), "its signature is refused");
  t.equal((await pool.query("SELECT FROM settlements")).rowCount, 1);
});

// Goal: the database's clock decides; a replica whose own clock is 10 minutes wrong pays and refuses like the
// others.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { checkLedger, usdcOf } from "./ledger.helper.ts";
import { post, startReplica } from "./replica.helper.ts";

const usdc = 1_000_000n;
const TEN_MINUTES_MS = 600_000;

const ctx = await testApp(t);
const { app, chain, database, logs } = ctx;
const owner = await signIn(ctx);
const SKEWS = [-TEN_MINUTES_MS, TEN_MINUTES_MS];
const replicas = await Promise.all(
  SKEWS.map(async (skewMs) => ({
    skewMs,
    replica: await startReplica(t, ctx, { PURSER_TEST_SKEW_MS: String(skewMs) }),
  })),
);

for (const { skewMs, replica } of replicas) {
  t.test(`a replica whose clock is ${skewMs > 0 ? "ahead" : "behind"}`, async (t) => {
    const payee = privateKeyToAccount(generatePrivateKey()).address;
    const agent = await createAgent(ctx, owner, { dailyLimit: "1", allowlist: [payee] });
    await chain.mint(agent.walletAddress, 9n * usdc);
    const spend = async () =>
      post(`${replica.url}/api/agents/spend`, agent.headers, { recipient: payee, amount: "1" });

    const paid = await spend();
    t.equal(paid.status, 200, JSON.stringify(paid.body));
    const { rows } = await database.pool.query<{ life: number; age: number }>(
      `SELECT (valid_before - extract(epoch FROM created_at))::float8 AS life,
              extract(epoch FROM clock_timestamp() - created_at)::float8 AS age
         FROM payments WHERE agent_id = $1`,
      [agent.id],
    );
    const life = rows[0]?.life ?? 0;
    t.ok(life > 60 && life <= 120, `valid for 120 s from now or the newest block: ${life}`);
    t.ok(Math.abs(rows[0]?.age ?? 999) < 60, "created_at comes from the database");

    await shift("23 hours 55 minutes");
    const early = await spend();
    t.equal(early.status, 403, "five minutes too early by the database's clock");
    t.equal(early.body["code"], "daily_limit_exceeded");
    await shift("5 minutes");
    t.equal((await spend()).status, 200, "24 hours later it fits");
    t.equal(await usdcOf(ctx, payee), 2n * usdc);
    await checkLedger(t, ctx, { agentId: agent.id, payee });

    async function shift(interval: string): Promise<void> {
      await database.pool.query(
        `WITH rows AS (UPDATE payments SET created_at = created_at - $2::interval WHERE agent_id = $1)
         UPDATE agents SET window_tail_at = window_tail_at - $2::interval WHERE id = $1`,
        [agent.id, interval],
      );
    }
  });
}

t.test("the clocks of chain and database are far apart", async (t) => {
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await createAgent(ctx, owner, { dailyLimit: "5", allowlist: [payee] });
  await chain.mint(agent.walletAddress, 9n * usdc);
  const spend = () => spendAs(app, agent, { recipient: payee, amount: "1" });
  const validBefore = async () => {
    const { rows } = await database.pool.query<{ at: bigint }>(
      "SELECT valid_before AS at FROM payments WHERE agent_id = $1 ORDER BY created_at DESC LIMIT 1",
      [agent.id],
    );
    return BigInt(rows[0]?.at ?? 0);
  };
  t.equal((await spend()).statusCode, 200);
  const { timestamp } = await chain.publicClient.getBlock({ blockNumber: 0n });
  t.ok((await validBefore()) > timestamp);

  // One hour ahead, as if the database's clock had been set back or the chain's had jumped.
  await chain.testClient.increaseTime({ seconds: 3_600 });
  await chain.testClient.mine({ blocks: 1 });
  const refused = await spend();
  t.equal(refused.statusCode, 503, refused.body);
  t.match(refused.json(), { code: "chain_unavailable", detail: /clock/ });
  t.ok(
    logs.some((line) => /far apart/.test(line)),
    "an alarm is logged",
  );
  const { rows } = await database.pool.query("SELECT status FROM payments WHERE agent_id = $1", [
    agent.id,
  ]);
  t.same(rows, [{ status: "settled" }], "nothing was reserved");
});

t.test("validBefore follows the earlier of the two clocks", async (t) => {
  const { rows } = await database.pool.query<Record<string, boolean>>(
    `SELECT purser_valid_before(120, now - 60) = now + 60 AS behind, purser_valid_before(120, now + 60) <= now + 121 AS ahead,
            purser_clock_apart(now - 121) AS stands, purser_clock_apart(now + 125) AS jumped, purser_clock_apart(now) AS fine
       FROM (SELECT floor(extract(epoch FROM clock_timestamp()))::bigint AS now) clock`,
  );
  t.same(rows, [{ behind: true, ahead: true, stands: true, jumped: true, fine: false }]);
});

// Goal: what a dead process left behind is released by any living one; old rows go, promised ones stay.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { statusesOf } from "./ledger.helper.ts";
import { deleteOldEvents } from "../../server/plugins/activity/events.ts";
import { deleteExpiredSignIns } from "../../server/plugins/owners/store.ts";
import { deleteOldKeys } from "../../server/plugins/payments/idempotency.ts";

const ctx = await testApp(t);
const { app, chain, database } = ctx;
const owner = await signIn(ctx);
const payee = privateKeyToAccount(generatePrivateKey()).address;
const agent = await createAgent(ctx, owner, { dailyLimit: "1", allowlist: [payee] });

const reserve = async () => {
  const result = await app.guardrails.reserve({
    agentId: agent.id,
    apiKeyId: agent.keyId,
    walletAddress: agent.walletAddress,
    kind: "spend",
    chainId: chain.chainId,
    asset: chain.usdc,
    to: payee,
    amountAtomic: 1n,
    nonce: `0x${Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString("hex")}`,
    validForSeconds: 120,
    requestId: null,
    balance: { atomic: 1_000n, blockNumber: 0n },
  });
  if (result.kind !== "reserved") throw new Error(result.kind);
  return result.paymentId;
};

t.test("a replica that starts releases reservations nobody signed", async (t) => {
  const paymentId = await reserve();
  const young = await reserve();
  await database.pool.query(
    "UPDATE payments SET created_at = created_at - interval '2 minutes' WHERE id = $1",
    [paymentId],
  );
  await Promise.all([
    testApp(t, { chain, database, listen: true }),
    testApp(t, { chain, database, listen: true }),
  ]);
  await until(async () => (await statusesOf(ctx, agent.id))["voided"] === 1, 20_000);
  t.same(await statusesOf(ctx, agent.id), { voided: 1, reserved: 1 });
  const { rows } = await database.pool.query<{ id: string; failure_code: string | null }>(
    "SELECT id, failure_code FROM payments WHERE agent_id = $1 ORDER BY created_at",
    [agent.id],
  );
  t.same(rows, [
    { id: paymentId, failure_code: "not_signed" },
    { id: young, failure_code: null },
  ]);
});

t.test("retention: old answers and events go, those of open payments stay", async (t) => {
  const open = await reserve();
  await database.pool.query(
    `INSERT INTO idempotency_keys (subject_id, route, key, body_hash, payment_id, created_at)
     SELECT $1, 'r', k, decode(repeat('00', 32), 'hex'), p, now() - age::interval
       FROM (VALUES ('old', NULL, '49 hours'), ('open', $2, '49 hours'), ('young', NULL, '25 hours'))
            AS v (k, p, age)`,
    [agent.id, open],
  );
  t.equal(await deleteOldKeys(database.pool, 48), 1);
  const { rows } = await database.pool.query("SELECT key FROM idempotency_keys ORDER BY key");
  t.same(rows, [{ key: "open" }, { key: "young" }]);

  await database.pool.query("UPDATE events SET created_at = now() - interval '3 days'");
  await app.inject({
    method: "PATCH",
    url: `/api/agents/${agent.id}`,
    headers: owner.headers,
    payload: JSON.stringify({ name: "Renamed" }),
  });
  t.ok((await deleteOldEvents(app.prisma, 48)) > 0);
  const events = await database.pool.query("SELECT 1 FROM events");
  t.equal(events.rowCount, 1);

  await database.pool.query(
    "INSERT INTO auth_nonces (nonce, expires_at) VALUES ('0123456789abcdef', now() - interval '2 hours')",
  );
  t.equal(await deleteExpiredSignIns(app.prisma), 1);
  const me = await app.inject({ url: "/api/auth/session", headers: owner.headers });
  t.equal(me.statusCode, 200, "a session in use stays");
});

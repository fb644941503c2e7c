// Goal: outages of database or chain get clear responses and show in /api/ready; the service recovers by itself.
import t from "tap";
import { buildApp } from "../../server/app.ts";
import { loadConfig } from "../../server/config.ts";
import { TokenDomainMismatch } from "../../server/infra/chain/index.ts";
import { MIGRATION_LOCK_KEY } from "../../server/infra/db/migrate.ts";
import { rpc } from "../../server/local/anvil.ts";
import { freePort } from "../../server/local/free-port.ts";
import { testApp, testEnvironment } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { tcpGate } from "../helpers/tcp-gate.ts";
import { until } from "../helpers/until.ts";

t.test("Postgres becomes unreachable and comes back", async (t) => {
  const database = await testDatabase(t);
  const address = new URL(database.url);
  const gate = await tcpGate(t, { host: address.hostname, port: Number(address.port) });
  address.port = String(gate.port);
  address.hostname = "127.0.0.1";
  const { app } = await testApp(t, { database: { ...database, url: address.href } });
  t.equal((await app.inject("/api/ready")).statusCode, 200, "ready at first");

  await gate.shut();
  const refused = await app.inject("/api/auth/nonce");
  t.equal(refused.statusCode, 503);
  t.match(refused.json(), { code: "service_unavailable", success: false });
  const notReady = await app.inject("/api/ready");
  t.equal(notReady.statusCode, 503);
  t.equal(notReady.json().parts.database.ok, false, "names the part");
  t.equal((await app.inject("/api/health")).statusCode, 200, "health stays up");

  await gate.open();
  await until(async () => (await app.inject("/api/auth/nonce")).statusCode === 200);
  await until(async () => (await app.inject("/api/ready")).statusCode === 200);
});

t.test("the RPC endpoint is unreachable at boot, becomes reachable, and fails again", async (t) => {
  const chain = await testChain(t);
  await chain.stop();
  const { app } = await testApp(t, { chain, timings: { chainRecheckMs: 100 } });
  const down = await app.inject("/api/ready");
  t.equal(down.statusCode, 503);
  t.equal(down.json().parts[`chain:eip155:${chain.chainId}`].ok, false);
  t.equal(down.json().parts.database.ok, true, "the other parts work");
  t.equal((await app.inject("/api/health")).statusCode, 200);
  t.equal((await app.inject("/api/info")).json().networks[0].blockHeight, null);

  await chain.start();
  await until(async () => (await app.inject("/api/ready")).statusCode === 200, 60_000);
  await chain.stop();
  await until(async () => (await app.inject("/api/ready")).statusCode === 503);
});

t.test('on a fresh chain, no authorization is "not yet valid"', async (t) => {
  for (const blockTimeSeconds of ["auto", 60] as const) {
    const chain = await testChain(t, { blockTimeSeconds });
    const to = "0x0000000000000000000000000000000000001234";
    // A contract that returns block.timestamp.
    await chain.testClient.setCode({ address: to, bytecode: "0x425f5260205ff3" });
    const { data } = await chain.publicClient.call({ to });
    const age = Math.abs(Date.now() / 1000 - Number(data));
    t.ok(age < 600, `${blockTimeSeconds}: calls see a block time ${age} s from now`);
  }
});

t.test("a chain without a block is not ready", async (t) => {
  const { app, chain } = await testApp(t);
  t.equal((await app.inject("/api/ready")).statusCode, 200, "ready at first");
  await rpc(chain.rpcUrl, "anvil_reset");
  const ready = await app.inject("/api/ready");
  t.equal(ready.statusCode, 503);
  t.match(ready.json().parts[`chain:eip155:${chain.chainId}`], {
    ok: false,
    detail: "it has no block yet",
  });
});

t.test("older functions in the database do not stop payments for long", async (t) => {
  const { app, database, logs } = await testApp(t);
  // Nobody can install functions while this lock is held, so the state is seen for certain.
  const client = await database.pool.connect();
  await client.query("SELECT pg_advisory_lock($1)", [MIGRATION_LOCK_KEY]);
  // As left by the start of a build without function versions.
  await database.pool.query(
    "UPDATE purser_functions SET checksum = 'of another build' WHERE name = 'purser_queue_position'",
  );
  const ready = await app.inject("/api/ready");
  t.equal(ready.statusCode, 503);
  t.match(ready.json().parts.functions, { ok: false, detail: "older than this build" });
  t.throws(() => app.functions.assertInstalled(), { code: "service_unavailable" });
  await client.query("SELECT pg_advisory_unlock($1)", [MIGRATION_LOCK_KEY]);
  client.release();
  await until(async () => (await app.inject("/api/ready")).statusCode === 200);
  t.doesNotThrow(() => app.functions.assertInstalled());
  // Ready as soon as the functions are committed; the log line follows.
  await until(() => logs.some((line) => line.includes("installed this build's functions again")));
});

t.test("a token with another EIP-712 domain stops the boot", async (t) => {
  const [database, chain, port] = await Promise.all([testDatabase(t), testChain(t), freePort()]);
  const config = loadConfig(testEnvironment({ databaseUrl: database.url, chain, port }));
  const [network] = config.networks;
  config.networks = [{ ...network, usdc: { ...network.usdc, version: "1" } }];
  await t.rejects(buildApp(config), { name: "TokenDomainMismatch", message: /DOMAIN_SEPARATOR/ });
  config.networks = [{ ...network, usdc: { ...network.usdc, address: chain.relayer.address } }];
  await t.rejects(buildApp(config), TokenDomainMismatch);
});

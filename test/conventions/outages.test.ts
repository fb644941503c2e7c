// Goal: outages of database or chain get clear responses and show in /api/ready; the service recovers by itself.
import { Pool } from "pg";
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { buildApp } from "../../server/app.ts";
import { loadConfig } from "../../server/config.ts";
import { ChainMismatch } from "../../server/infra/chain/index.ts";
import { MIGRATION_LOCK_KEY } from "../../server/infra/db/migrate.ts";
import { readWritability } from "../../server/infra/db/settings.ts";
import { rpc } from "../../server/local/anvil.ts";
import { readCommit } from "../../server/local/bootstrap.mjs";
import { freePort } from "../../server/local/free-port.ts";
import { signedPayment } from "../facilitator/payments.ts";
import { testApp, testEnvironment } from "../helpers/app.ts";
import { agentWorld, builtService, ready, type AgentWorld } from "../helpers/built-service.ts";
import { testChain } from "../helpers/chain.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { tcpGate } from "../helpers/tcp-gate.ts";
import { until } from "../helpers/until.ts";

/** Requests of every kind that need the database, each with what may answer it. */
async function requestsOf({ chain, agent, owner, payee }: AgentWorld) {
  const payer = privateKeyToAccount(generatePrivateKey());
  await chain.mint(payer.address, 1_000_000n);
  const payment = JSON.stringify(await signedPayment({ chain, payer, payTo: payee }));
  const json = { "content-type": "application/json" };
  const rpcCall = { jsonrpc: "2.0", id: 1, method: "tools/call" };
  const status = { ...rpcCall, params: { name: "wallet_status", arguments: {} } };
  const accept = { accept: "application/json, text/event-stream" };
  const post = (body: unknown, headers = json): RequestInit => ({
    method: "POST",
    headers,
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
  const ours = { status: 503, body: { code: "service_unavailable", success: false } };
  return [
    { path: "/api/auth/nonce", options: {}, expected: ours },
    { path: "/api/agents/me", options: { headers: agent.headers }, expected: ours },
    { path: "/api/agents/me/payments", options: { headers: agent.headers }, expected: ours },
    {
      path: "/api/agents/spend",
      options: post({ recipient: payee, amount: "0.01" }, agent.headers as typeof json),
      expected: ours,
    },
    { path: "/api/overview", options: { headers: owner.headers }, expected: ours },
    { path: "/api/x402/discovery/resources", options: {}, expected: ours },
    {
      path: "/api/x402/verify",
      options: post(payment),
      // It reads the chain, and counts in the process.
      expected: { status: 200, body: { isValid: true } },
    },
    {
      path: "/api/x402/settle",
      options: post(payment),
      expected: { status: 200, body: { success: false, errorReason: "unexpected_settle_error" } },
    },
    {
      path: "/mcp",
      options: post(status, { ...agent.headers, ...accept } as unknown as typeof json),
      expected: { status: 503, body: {} },
    },
  ];
}

t.test("the compiled service, without its chain and without Postgres", async (t) => {
  const world = await agentWorld(t);
  const { chain, agent, payee } = world;
  const address = new URL(world.database.url);
  const gate = await tcpGate(t, { host: address.hostname, port: Number(address.port) });
  address.port = String(gate.port);
  address.hostname = "127.0.0.1";
  const database = { ...world.database, url: address.href };
  await chain.stop();
  const service = await builtService(t, { ...world, database });
  const { call, logs } = service;
  const spend = () =>
    call("/api/agents/spend", {
      method: "POST",
      headers: agent.headers,
      body: JSON.stringify({ recipient: payee, amount: "0.01" }),
    });

  await t.test(
    "the RPC endpoint is unreachable at boot, becomes reachable, and fails again",
    async (t) => {
      const down = await ready(service);
      t.equal(down.status, 503);
      t.equal(down.body.parts[`chain:eip155:${chain.chainId}`]?.ok, false);
      t.equal(down.body.parts["database"]?.ok, true, "the other parts work");
      t.equal((await call("/api/health")).status, 200);
      const info = (await call("/api/info")).body as { networks?: { blockHeight: unknown }[] };
      t.equal(info.networks?.[0]?.blockHeight, null);

      await chain.start();
      await until(async () => (await ready(service)).status === 200, 60_000);
      await chain.stop();
      await until(async () => (await ready(service)).status === 503);
      await until(async () => (await spend()).body["code"] === "chain_unavailable", 20_000);
      const from = logs.length;
      const BURST = 200;
      await Promise.all(Array.from({ length: BURST }, () => spend()));
      const lines = () => logs.slice(from).filter(({ outage }) => outage === "chain");
      await until(() => lines().some(({ leftOut }) => leftOut !== undefined));
      t.ok(lines().length < BURST / 4, `${lines().length} lines of ${BURST} refused payments`);

      await chain.start();
      await until(async () => (await ready(service)).status === 200, 60_000);
    },
  );

  await t.test("Postgres becomes unreachable and comes back", async (t) => {
    const health = await call("/api/health");
    t.match(health.body, { commit: readCommit(), builtAt: /^20\d\d-/ }, "what was compiled");

    await gate.shut();
    for (const { path, options, expected } of await requestsOf(world)) {
      const { status, headers, body } = await call(path, options);
      t.match({ status, body }, expected, `${path}: ${JSON.stringify(body)}`);
      if (status === 503) t.equal(headers.get("retry-after"), "2", path);
    }
    const notReady = await ready(service);
    t.equal(notReady.status, 503);
    t.equal(notReady.body.parts["database"]?.ok, false, "names the part");
    t.equal((await call("/api/health")).status, 200, "health stays up");

    await t.test("the log has one line a second, and counts the others", async (t) => {
      const BURST = 200;
      const from = logs.length;
      const isOurs = ({ outage, msg }: Record<string, unknown>): boolean =>
        outage === "database" && msg === "request failed";
      await Promise.all(Array.from({ length: BURST }, () => call("/api/auth/nonce")));
      const lines = () => logs.slice(from).filter(({ outage }) => outage === "database");
      const counted = (): number =>
        lines().filter(isOurs).length +
        lines()
          .flatMap(({ leftOut }) => Object.entries((leftOut ?? {}) as Record<string, number>))
          .flatMap(([kind, count]) => (kind.startsWith("request failed (") ? [count] : []))
          .reduce((sum, count) => sum + count, 0);
      // Each is written or counted.
      await until(() => counted() >= BURST);
      t.ok(lines().length < BURST / 4, `${lines().length} lines of ${BURST} failed requests`);
    });

    await gate.open();
    await until(async () => (await call("/api/auth/nonce")).status === 200);
    await until(async () => (await ready(service)).status === 200);

    await t.test("it becomes read-only", async (t) => {
      const { pool } = world.database;
      const name = address.pathname.slice(1);
      const make = async (value: string): Promise<void> => {
        await pool.query(`BEGIN READ WRITE; ALTER DATABASE ${name} ${value}; COMMIT`);
        // Open connections keep their setting.
        await pool.query(
          "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
      };
      const detail = async () => (await ready(service)).body.parts["database"]?.detail;
      await make("SET default_transaction_read_only = on");
      await until(async () => (await detail()) === "cannot write: it is read-only", 30_000);
      t.equal((await ready(service)).status, 503);
      t.match(await spend(), { status: 503, body: { code: "service_unavailable" } });
      await make("RESET default_transaction_read_only");
      await until(async () => (await ready(service)).status === 200, 30_000);
      t.equal((await spend()).status, 200);
    });
  });
});

t.test("where Postgres' message is missing, its own word counts", async (t) => {
  const { url, pool } = await testDatabase(t);
  await pool.query(
    `CREATE SCHEMA lacking;
     CREATE FUNCTION lacking.pg_logical_emit_message(boolean, text, text) RETURNS pg_lsn LANGUAGE plpgsql
       AS $$ BEGIN RAISE EXCEPTION 'not supported' USING ERRCODE = '0A000'; END $$`,
  );
  const stateWith = async (settings: string) => {
    const its = new URL(url);
    its.searchParams.set("options", `-c search_path=lacking,pg_catalog,public ${settings}`);
    const own = new Pool({ connectionString: its.href, max: 1 });
    t.teardown(async () => own.end());
    return readWritability(own);
  };
  t.equal(await stateWith(""), "writable");
  t.equal(await stateWith("-c default_transaction_read_only=on"), "it is read-only");
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
  await t.rejects(buildApp(config), { name: "ChainMismatch", message: /DOMAIN_SEPARATOR/ });
  config.networks = [{ ...network, usdc: { ...network.usdc, address: chain.relayer.address } }];
  await t.rejects(buildApp(config), ChainMismatch);
});

t.test("an endpoint of another chain stops the boot, wherever it is in the list", async (t) => {
  const [database, chain, port] = await Promise.all([testDatabase(t), testChain(t), freePort()]);
  const foreign = await testChain(t, { chainId: 130 });
  const config = loadConfig(testEnvironment({ databaseUrl: database.url, chain, port }));
  const [network] = config.networks;
  const silent = `http://127.0.0.1:${await freePort()}`;
  for (const [rpcUrls, position] of [
    [[foreign.rpcUrl], 1],
    [[chain.rpcUrl, foreign.rpcUrl], 2],
    [[chain.rpcUrl, silent, foreign.rpcUrl], 3],
  ] as const) {
    config.networks = [{ ...network, rpcUrls: [...rpcUrls] }];
    const message = `RPC endpoint ${position} in RPC_URL_${network.chainId} serves the chain 130`;
    await t.rejects(buildApp(config), { name: "ChainMismatch", message: new RegExp(message) });
  }
});

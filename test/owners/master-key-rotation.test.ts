// Goal: master keys can be rotated while the service signs, and the next run finishes a killed one.
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import t from "tap";
import type { Address, Hex } from "viem";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { createPool } from "../../server/infra/db/pool.ts";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import { addressOf } from "../../server/core/signatures.ts";
import {
  KeyRing,
  sealWallet,
  unsigned,
  withPrivateKey,
} from "../../server/plugins/custody/envelope.ts";
import { ROTATION_BATCH, rotateMasterKey } from "../../server/plugins/custody/keys-rotate.ts";
import { testApp, testEnvironment } from "../helpers/app.ts";
import { gateAt } from "../helpers/gate.ts";
import { createAgent, sealedWallets, signIn } from "../helpers/owner.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const WALLETS = 2_000;
const PAYEE = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8" as Address;
const BY_POLICY = { kind: "policy" } as const;
const oldKey = { kid: "old", key: new Uint8Array(randomBytes(32)) };
const newKey = { kid: "new", key: new Uint8Array(randomBytes(32)) };
const keyText = ({ kid, key }: typeof oldKey): string =>
  `${kid}:${Buffer.from(key).toString("base64")}`;
const MASTER_KEYS = `${keyText(oldKey)},${keyText(newKey)}`;

t.test("a master key that is missing by mistake destroys nothing that it sealed", async (t) => {
  const first = await testApp(t, { env: { MASTER_KEYS: keyText(oldKey) } });
  const { app, database, chain } = first;
  const read = async () => (await database.pool.query("SELECT * FROM service_secrets")).rows;
  const before = await app.sharedSecret("test");
  const rows = await read();
  t.ok(rows.length > 0);
  await t.rejects(
    testApp(t, { chain, database, env: { MASTER_KEYS: keyText(newKey) } }).then(({ app: wrong }) =>
      wrong.sharedSecret("test"),
    ),
    {
      name: "ConfigError",
      message: /is sealed under master key "old", which is not in MASTER_KEYS/,
    },
  );
  t.same(await read(), rows);
  const both = await testApp(t, {
    chain,
    database,
    env: { MASTER_KEYS, MASTER_KEY_ACTIVE: "new" },
  });
  t.same(
    await both.app.sharedSecret("test"),
    before,
    "the secret is the same when the key is back",
  );
  // A missing key of a webhook's secret is reported, but keeps the replica ready.
  const ready = async () => (await app.inject({ url: "/api/ready" })).body;
  t.match(await ready(), "all required master keys are configured");
  await database.pool.query(
    "UPDATE service_secrets SET sealed = '\\x0104' || convert_to('gone', 'UTF8') || sealed WHERE purpose = 'test'",
  );
  t.match(await ready(), "degraded: secrets of webhooks or of the service are under a master key");
});

t.test("keys:rotate", async (t) => {
  await prepare((line) => t.comment(line), [ensureServerBuild]);
  const service = await testApp(t, { env: { MASTER_KEYS, MASTER_KEY_ACTIVE: "old" } });
  const { app, database, chain, config } = service;
  const owner = await signIn(service);
  const agent = await createAgent(service, owner, { allowlist: [PAYEE] });
  await addWallets();
  const count = async (kid: string): Promise<number> => {
    const { rows } = await database.pool.query<{ count: string }>(
      "SELECT count(*) FROM agent_wallets WHERE kid = $1",
      [kid],
    );
    return Number(rows[0]?.count);
  };
  const total = WALLETS + 1;
  t.equal(await count("old"), total);

  // Signing goes on during the rotation.
  let signatures = 0;
  const rotation = new AbortController();
  const signing = (async () => {
    while (!rotation.signal.aborted) {
      await app.custody.signAuthorization(agent.id, authorization(agent.walletAddress), BY_POLICY);
      signatures += 1;
      await delay(10);
    }
  })();

  await t.test("killed after one batch", async (t) => {
    const gate = await gateAt(t, database.pool, {
      on: "BEFORE UPDATE ON agent_wallets",
      when: "EXISTS (SELECT 1 FROM agent_wallets WHERE kid = 'new')",
    });
    const killed = await runRotation({ killAt: gate.reached() });
    await gate.open();
    t.equal(killed.signal, "SIGKILL");
    const done = await count("new");
    t.equal(done, ROTATION_BATCH, "killed in the second batch, which is rolled back");
    t.equal((await count("old")) + done, total, "every wallet is under one of the two keys");
  });

  await t.test("the next run finishes the work", async (t) => {
    const before = await count("old");
    const finished = await runRotation();
    t.equal(finished.code, 0, finished.output);
    t.equal(await count("old"), 0);
    t.equal(await count("new"), total);
    t.match(finished.output, `Done: ${before} re-wrapped`);
    t.match(finished.output, / left\n/, "reports its progress");
    for (const key of [oldKey, newKey])
      t.notOk(finished.output.includes(keyText(key).split(":")[1] ?? ""), "prints no key");
    const again = await runRotation();
    t.match(again.output, "Done: 0 re-wrapped");
    t.equal(again.code, 0);
  });

  rotation.abort();
  await signing;
  t.ok(signatures > 0, `${signatures} signatures during the rotation`);

  await t.test("every wallet opens with the new key alone", async (t) => {
    const ring = new KeyRing([newKey], "new");
    const opened = await Promise.all(
      (await sealedWallets(database)).map((row) =>
        withPrivateKey(
          ring,
          row,
          row,
          (key) => row.agentId !== agent.id || addressOf(key) === row.address,
        ),
      ),
    );
    t.equal(opened.filter(Boolean).length, total);
    const later = await testApp(t, { database, chain, env: { MASTER_KEYS: keyText(newKey) } });
    t.ok(
      await later.app.custody.signAuthorization(
        agent.id,
        authorization(agent.walletAddress),
        BY_POLICY,
      ),
    );
  });

  await t.test("two parallel runs share the work", async (t) => {
    const pool = createPool(database.url);
    t.teardown(() => pool.end());
    const back = new KeyRing([oldKey, newKey], "old");
    const runs = await Promise.all([
      rotateMasterKey(createPrisma(pool), back, () => undefined, 100),
      rotateMasterKey(createPrisma(pool), back, () => undefined, 100),
    ]);
    t.equal(runs[0].rewrapped + runs[1].rewrapped, total, "none twice");
    t.equal(await count("old"), total);
  });

  await t.test("a wallet that cannot be decrypted stops the run", async (t) => {
    const pool = createPool(database.url);
    t.teardown(() => pool.end());
    await database.pool.query(
      "UPDATE agent_wallets SET wrapped_data_key = set_byte(wrapped_data_key, 30, get_byte(wrapped_data_key, 30) # 1) WHERE agent_id = $1",
      [agent.id],
    );
    const ring = new KeyRing([oldKey, newKey], "new");
    await t.rejects(
      rotateMasterKey(createPrisma(pool), ring, () => undefined, total),
      { name: "CustodyError" },
    );
    t.equal(await count("new"), 0);
  });

  await t.test("without the keys, the error names the missing setting", async (t) => {
    const missing = await runRotation({ env: { MASTER_KEYS: "" } });
    t.equal(missing.code, 1);
    t.match(missing.output, "MASTER_KEYS is missing");
    t.notMatch(missing.output, /\n\s+at /, "no stack trace");
  });

  /** Fillers sealed like real wallets. */
  async function addWallets(): Promise<void> {
    const ring = new KeyRing([oldKey], "old");
    const seal = unsigned({ address: owner.account.address.toLowerCase(), chainId: 0 });
    const made = Array.from({ length: WALLETS }, async (_, index) => {
      const agentId = `agt_filler${String(index).padStart(6, "0")}`;
      const address = `0xf${index.toString(16).padStart(39, "0")}`;
      return {
        agentId,
        address,
        ...(await sealWallet(ring, { agentId, address, ...seal }, randomBytes(32))),
      };
    });
    const rows = await Promise.all(made);
    await database.pool.query(
      `INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit)
       SELECT w.id, (SELECT id FROM owners LIMIT 1), 'filler', 'eip155:5042002', w.address, 0
         FROM unnest($1::text[], $2::text[]) AS w (id, address)`,
      [rows.map(({ agentId }) => agentId), rows.map(({ address }) => address)],
    );
    await database.pool.query(
      `INSERT INTO agent_wallets (agent_id, address, kid, wrapped_data_key, ciphertext)
       SELECT w.id, w.address, 'old', w.wrapped, w.sealed
         FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[]) AS w (id, address, wrapped, sealed)`,
      [
        rows.map(({ agentId }) => agentId),
        rows.map(({ address }) => address),
        rows.map(({ wrappedDataKey }) => wrappedDataKey),
        rows.map(({ ciphertext }) => ciphertext),
      ],
    );
  }

  async function runRotation(
    options: { killAt?: Promise<void>; env?: Record<string, string> } = {},
  ): Promise<{ code: number | null; signal: string | null; output: string }> {
    const environment = testEnvironment({
      databaseUrl: database.url,
      chain,
      port: config.port,
      env: { MASTER_KEYS, MASTER_KEY_ACTIVE: "new", ...options.env },
    });
    const child = spawn(process.execPath, ["server/dist/keys-rotate.js"], {
      cwd: ROOT,
      env: { PATH: process.env["PATH"], ...environment },
    });
    let output = "";
    const read = (chunk: Buffer): void => void (output += chunk.toString());
    void options.killAt?.finally(() => child.kill("SIGKILL"));
    child.stdout.on("data", read);
    child.stderr.on("data", read);
    return new Promise((resolve) => {
      child.on("close", (code, signal) => resolve({ code, signal, output }));
    });
  }
});

const randomHash = (): Hex => `0x${randomBytes(32).toString("hex")}`;
const authorization = (from: Address) => ({
  chainId: 5042002,
  asset: "0x3600000000000000000000000000000000000000" as Address,
  from,
  to: PAYEE,
  value: 1n,
  validAfter: 0n,
  validBefore: 1_900_000_000n,
  nonce: randomHash(),
});

// Goal: while the database's disk is full, callers get a 503 and the service is not ready; nothing is paid twice, and
// it recovers by itself.
// Tier: full (mounts a small file system, which only root may do).
import { execFileSync } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client } from "pg";
import t, { type Test } from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { newId } from "../../server/core/ids.ts";
import { chooseRunAs, findPostgresBinaries } from "../../server/local/postgres-binaries.ts";
import { signedPayment } from "../facilitator/payments.ts";
import { agentWorld, builtService, ready } from "../helpers/built-service.ts";
import { testDatabase, type TestDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { checkLedger } from "../spending/ledger.helper.ts";

const SIZE_MIB = 96;

/** A file system of its own, for the user that runs Postgres; undefined where this process may not mount one. */
function smallDisk(t: Test): string | undefined {
  const owner = chooseRunAs(findPostgresBinaries().initdb).owner;
  if (process.getuid?.() !== 0 || owner === undefined) return undefined;
  const folder = mkdtempSync(join(tmpdir(), "purser-disk-"));
  try {
    const options = `size=${SIZE_MIB}m,mode=755,uid=${owner.uid},gid=${owner.gid}`;
    execFileSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", folder], { stdio: "ignore" });
  } catch {
    rmSync(folder, { recursive: true });
    return undefined;
  }
  t.teardown(() => {
    execFileSync("umount", [folder]);
    rmSync(folder, { recursive: true });
  });
  return folder;
}

/** A database whose tables are there. Its log stays where it is: without room for it, Postgres itself stops. */
async function databaseOn(t: Test, folder: string): Promise<TestDatabase> {
  const tables = join(folder, "tables");
  mkdirSync(tables, { mode: 0o700 });
  execFileSync("chown", ["--reference", folder, tables]);
  const tablespace = `small_${process.pid}`;
  const asAdmin = async (sql: string): Promise<void> => {
    const admin = new Client({ connectionString: process.env["PURSER_TEST_POSTGRES_URL"] });
    await admin.connect();
    try {
      await admin.query(sql);
    } finally {
      await admin.end();
    }
  };
  await asAdmin(`CREATE TABLESPACE ${tablespace} LOCATION '${tables}'`);
  t.teardown(() => asAdmin(`DROP TABLESPACE ${tablespace}`));
  const database = await testDatabase(t);
  const name = new URL(database.url).pathname.slice(1);
  await asAdmin(`ALTER DATABASE ${name} SET TABLESPACE ${tablespace}`);
  return database;
}

/** Writes a file until nothing more fits, and returns how to delete it. */
function fill(disk: string): () => void {
  const path = join(disk, "fill");
  const file = openSync(path, "w");
  try {
    for (const size of [2 ** 20, 2 ** 12]) {
      const bytes = Buffer.alloc(size, 1);
      try {
        for (;;) writeSync(file, bytes);
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
      }
    }
  } finally {
    closeSync(file);
  }
  return () => rmSync(path);
}

const disk = smallDisk(t) ?? "";
const skip = disk === "" && "only root may mount a file system";

t.test("the disk of the database is full", { skip, timeout: 300_000 }, async (t) => {
  const database = await databaseOn(t, disk);
  const world = await agentWorld(t, { database });
  const { chain, agent, payee } = world;
  const service = await builtService(t, world);
  const spend = (key = newId("key")) =>
    service.call("/api/agents/spend", {
      method: "POST",
      headers: { ...agent.headers, "idempotency-key": key },
      body: JSON.stringify({ recipient: payee, amount: "0.0001", memo: "x".repeat(200) }),
    });
  await until(async () => (await ready(service)).status === 200, 60_000);
  t.equal((await spend()).status, 200, "at first");

  const free = fill(disk);
  await until(async () => (await ready(service)).status === 503, 30_000);
  t.match((await ready(service)).body.parts["database"], {
    ok: false,
    detail: "cannot write: its disk is full",
  });
  // There is room inside the files: the first payments may still fit.
  const refused: string[] = [];
  await until(async () => {
    const keys = Array.from({ length: 8 }, () => newId("key"));
    const answers = await Promise.all(keys.map((key) => spend(key)));
    for (const [index, { status, headers, body }] of answers.entries()) {
      if (status === 200) continue;
      const text = JSON.stringify(body);
      t.ok([503, 504].includes(status), text);
      if (body["code"] === "service_unavailable") t.equal(headers.get("retry-after"), "2", text);
      refused.push(keys[index] ?? "");
    }
    return refused.length >= 20;
  }, 120_000);
  const payer = privateKeyToAccount(generatePrivateKey());
  const seller = privateKeyToAccount(generatePrivateKey()).address;
  await chain.mint(payer.address, 1_000_000n);
  const settled = await service.call("/api/x402/settle", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(await signedPayment({ chain, payer, payTo: seller })),
  });
  t.equal(settled.status, 200, "an outcome of the protocol");

  free();
  await until(async () => (await ready(service)).status === 200, 60_000);
  // Each refused payment is made once when its caller repeats it.
  for (const key of refused) await until(async () => (await spend(key)).status === 200, 60_000);
  if (settled.body["errorReason"] !== "settlement_pending")
    t.equal(
      await chain.usdcOf(seller),
      settled.body["success"] === true ? 1_000n : 0n,
      "a third party's payment is what its answer said",
    );
  await until(async () => {
    const { rowCount } = await database.pool.query(
      "SELECT FROM payments WHERE status NOT IN ('settled', 'voided', 'blocked')",
    );
    return rowCount === 0;
  }, 60_000);
  await checkLedger(t, world, { agentId: agent.id, payee });
});

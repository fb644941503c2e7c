// Which seed finds which planted defect: the same worlds with each defect in turn, on one Postgres.
//
//   node --import=tsx test/simulation/planted/measure.ts --seeds 300 --seconds 60
//   node --import=tsx test/simulation/planted/measure.ts gas-charged-at-each-depth canceled-before-it-is-final:buyer,reorganisation
//
// Behind a name: the kinds of actors and faults to which the worlds are limited.
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Client } from "pg";
import { migrate } from "../../../server/infra/db/migrate.ts";
import { ROOT } from "../../../server/infra/root.ts";
import { startPostgres } from "../../../server/local/postgres.ts";
import { compileSimulation } from "../compile.mjs";
import { prepareDatabase } from "../setup.ts";
import { functionsWith, Hand, PASSWORD, SETTINGS } from "../simulation.ts";
import { FUNCTIONS_DIRECTORY } from "../../../server/infra/db/functions.ts";
import { DEFECTS, defectOf, plantedIn } from "./index.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seeds: { type: "string", default: "1000" },
    from: { type: "string", default: "1" },
    /** At most this long for each defect. */
    seconds: { type: "string", default: "3600" },
  },
});
const wanted = positionals.length > 0 ? positionals : DEFECTS.map(({ name }) => name);
const from = Number(values.from);
const seeds = Array.from({ length: Number(values.seeds) }, (_, index) => from + index);

const dir = mkdtempSync(join(tmpdir(), "purser-planted-"));
const tmp = join(fileURLToPath(ROOT), ".tmp");
mkdirSync(tmp, { recursive: true });
const compiled = mkdtempSync(join(tmp, "planted-"));
const socketDir = join(dir, "postgres");
const children: ChildProcess[] = [];
const postgres = await startPostgres({
  dir,
  password: PASSWORD,
  durable: false,
  maxConnections: 200,
  removeOnExit: dir,
  settings: [`unix_socket_directories=${socketDir}`, ...SETTINGS],
});
const urlOf = (database: string): string =>
  `postgresql://purser:${PASSWORD}@localhost:${postgres.port}/${database}?host=${encodeURIComponent(socketDir)}`;
const admin = new Client({ connectionString: urlOf("postgres") });
await admin.connect();

async function copyOf(name: string): Promise<string> {
  await admin.query(`CREATE DATABASE ${name} TEMPLATE first`);
  await admin.query(`ALTER DATABASE ${name} SET search_path = public, sim, pg_catalog`);
  return urlOf(name);
}

try {
  await admin.query("CREATE DATABASE first");
  await prepareDatabase(urlOf("first"), FUNCTIONS_DIRECTORY);
  const program = await compileSimulation(join(compiled, "present"));
  const [code] = (await once(fork(program, [urlOf("first"), "found"]), "exit")) as [number];
  if (code !== 0) throw new Error("the first owners and agents could not be made");
  const present = new Hand(program, await copyOf("present"), children);
  for (const [number, text] of wanted.entries()) {
    const [name = "", kinds = ""] = text.split(":");
    const only = kinds.split(",").filter(Boolean);
    const isSql = defectOf(name).file.endsWith(".sql");
    const database = await copyOf(`planted_${number}`);
    const own: ChildProcess[] = [];
    if (isSql) {
      const folder = join(dir, name);
      mkdirSync(folder);
      await migrate({
        connectionString: database,
        functionsDirectory: await functionsWith(name, folder),
      });
    }
    const hand = new Hand(
      isSql ? program : await compileSimulation(join(compiled, name), [plantedIn(name)]),
      database,
      own,
    );
    const begunMs = performance.now();
    const isOver = (): boolean => performance.now() - begunMs > Number(values.seconds) * 1_000;
    let found: string | undefined;
    let played = 0;
    for (const seed of seeds) {
      if (found !== undefined || isOver()) break;
      played += 1;
      const { broken } = await hand.play({ seed, only });
      // A world that breaks without the defect shows nothing, nor does one that takes too long on a busy machine.
      if (broken[0]?.startsWith("the world did not end") === true) continue;
      if (broken.length === 0 || (await present.play({ seed, only })).broken.length > 0) continue;
      found = `seed ${seed}: ${broken[0]?.slice(0, 160) ?? ""}`;
    }
    for (const child of own) child.kill("SIGKILL");
    const took = ((performance.now() - begunMs) / 1_000).toFixed(0);
    console.log(`${text}: ${found ?? `not found in ${played} worlds`} (${took} s)`);
  }
} finally {
  for (const child of children) child.kill("SIGKILL");
  await admin.end();
  await postgres.stop();
  rmSync(compiled, { recursive: true, force: true });
  rmSync(dir, { recursive: true, force: true });
}
process.exit(0);

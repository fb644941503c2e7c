// Goal: what is made for each payment has the shapes that are there already. V8 gives `{ ...one, more: 1 }` a shape of its own each
// time: microseconds to make, and whatever reads it later never gets fast, or is made fast again and again.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { freePort } from "../../server/local/free-port.ts";
import { load, settleOutcome, verifyOutcome } from "../bench/load.ts";
import { makePayers, signedBodies } from "../bench/signed.ts";
import { AMPLE_GAS, testEnvironment } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const COUNT = 300;
const AT_ONCE = 30;
/** In one place: connections, and what runs by the clock, make some in the same time. */
const MOST = COUNT * 0.9;

/** Where in the compiled server, and which property. */
function countsOf(lines: string[][]): [string, number][] {
  const counts = new Map<string, number>();
  for (const line of lines) {
    const [row, column, reason, name] = line.slice(6);
    // Not in any script.
    if (row === "0") continue;
    const place = `${row}:${column} ${reason} ${name}`;
    counts.set(place, (counts.get(place) ?? 0) + 1);
  }
  return [...counts];
}

await prepare((line) => t.comment(line), [ensureServerBuild]);

t.test("payments make no shapes", async (t) => {
  const chain = await testChain(t);
  const database = await testDatabase(t);
  const port = await freePort();
  const logFile = join(t.testdir({}), "v8.log");
  const startedAtMs = performance.now();
  const child = spawn(
    process.execPath,
    [
      "--log-maps",
      `--logfile=${logFile}`,
      "--no-logfile-per-isolate",
      "server/start.mjs",
      "--built",
    ],
    {
      cwd: ROOT,
      env: {
        PATH: process.env["PATH"],
        ...testEnvironment({ databaseUrl: database.url, chain, port }),
        [`GAS_BUDGET_${chain.chainId}`]: AMPLE_GAS,
      },
      stdio: "ignore",
    },
  );
  t.teardown(() => child.kill("SIGKILL"));
  const url = `http://127.0.0.1:${port}/api/x402`;
  await until(
    () =>
      fetch(`${url}/supported`).then(
        ({ ok }) => ok,
        () => false,
      ),
    60_000,
  );

  const round = async (path: "verify" | "settle"): Promise<void> => {
    const payers = makePayers(COUNT);
    await chain.mint(
      payers.map(({ address }) => address),
      10n ** 6n,
    );
    const { outcomes } = await load({
      url: `${url}/${path}`,
      bodies: signedBodies({ chain, payers, payTo: chain.admin.address, count: COUNT }),
      inFlight: AT_ONCE,
      outcomeOf: path === "verify" ? verifyOutcome : settleOutcome,
    });
    t.same(outcomes, { [path === "verify" ? "valid" : "success"]: COUNT });
  };
  const sinceStartMs = (): number => performance.now() - startedAtMs;
  const times: [number, number][] = [];
  for (const path of ["verify", "settle"] as const) {
    // The first ones make what stays.
    await round(path);
    const fromMs = sinceStartMs();
    await round(path);
    times.push([fromMs, sinceStartMs()]);
  }
  const ended = once(child, "exit");
  child.kill("SIGTERM");
  await ended;

  const made = readFileSync(logFile, "latin1")
    .split("\n")
    .map((line) => line.split(","))
    .filter(([kind]) => kind === "map");
  t.ok(made.length > 1_000, `${made.length} lines: V8 tells of shapes as it did`);
  for (const [index, what] of ["verify", "settle"].entries()) {
    const [fromMs = 0, untilMs = 0] = times[index] ?? [];
    const within = made.filter(([, , micros]) => {
      const atMs = Number(micros) / 1000;
      return atMs > fromMs && atMs < untilMs;
    });
    t.same(
      countsOf(within).filter(([, count]) => count > MOST),
      [],
      `${COUNT} times ${what}`,
    );
  }
});

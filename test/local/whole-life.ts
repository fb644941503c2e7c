// The life cycle of `npm start` on a copy of this checkout, with everything that can go wrong.
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Test } from "tap";
import { freePort } from "../../server/local/free-port.ts";
import {
  NPM_START,
  printed,
  processesIn,
  startIn,
  until,
  type FreshCopy,
  type Started,
} from "../helpers/fresh-copy.ts";

const READY = "Ctrl-C stops everything.";
const RESET = [process.execPath, "server/reset.mjs"];
/** Longer than this counts as hanging. */
const HANGS_MS = 120_000;

/** Checks for exactly one line with the reason, and no stack trace. */
function isOneLineRefusal(t: Test, started: Started, reason: RegExp): void {
  const lines = started.output().trim().split("\n");
  t.match(lines.at(-1), reason);
  t.equal(lines.filter((line) => line.startsWith("Purser could not start")).length, 1);
  t.notMatch(started.output(), /^\s+at /m, "no stack trace");
}

/** The exit code, or "still running" if a process still holds its output after the timeout. */
const endOf = (started: Started): Promise<number | string> =>
  Promise.race([started.ended, delay(HANGS_MS, "still running", { ref: false })]);

async function answers(url: string): Promise<number> {
  const response = await fetch(url, { signal: AbortSignal.timeout(60_000) });
  await response.arrayBuffer();
  return response.status;
}

interface Life {
  copy: FreshCopy;
  env: Record<string, string>;
  url: string;
  first: Started;
}

/** Before anything is built: stops a start while one of its tools works. */
export async function stopWhileBuilding(t: Test, copy: FreshCopy): Promise<void> {
  await t.test("SIGTERM to npm during the build also ends the build", async (t) => {
    const building = startIn(t, copy, {}, NPM_START);
    await printed(building, "Building the web app");
    await until(() => processesIn(copy.dir).length >= 3, "npm, the start and the build are seen");
    building.process.kill("SIGTERM");
    t.equal(await endOf(building), 143, building.output());
    t.same(processesIn(copy.dir), []);
  });
}

/** The first start of a copy, up to its banner. */
export async function firstStart(t: Test, copy: FreshCopy): Promise<Life> {
  const port = await freePort();
  const env = { PORT: String(port), DATA_DIR: join(copy.dir, ".data"), LOG_LEVEL: "warn" };
  const url = `http://127.0.0.1:${port}`;
  const first = startIn(t, copy, env);
  await printed(first, READY, HANGS_MS);
  t.match(first.output(), `http://localhost:${port}`, "the banner contains the URL");
  t.equal(await answers(`${url}/api/health`), 200);
  t.equal(await answers(`${url}/api/ready`), 200);
  t.equal(await answers(`${url}/`), 200, "the web app");
  return { copy, env, url, first };
}

/** From the banner to a paid call, with only the checkout. */
export async function firstPayment(t: Test, { copy, env }: Life): Promise<void> {
  await t.test("two commands create an agent and pay", async (t) => {
    const url = `http://localhost:${env["PORT"]}`;
    const purser = async (...args: string[]) => {
      const command = ["npx", "--no-install", "purser", ...args];
      const started = startIn(t, copy, { PURSER_URL: url }, command);
      t.equal(await started.ended, 0, started.output());
      // npm may print something else as well.
      const [printed = ""] = /^\{.*\}$/m.exec(started.output()) ?? [];
      return JSON.parse(printed) as Record<string, unknown>;
    };
    t.match(await purser("init", "--save"), { funded: "100", apiKey: /^purser_/ });
    const paid = await purser("fetch", `${url}/api/arc-stats`, "--max", "0.01");
    t.match(paid, { paid: true, amountPaid: "0.001" });
  });
}

/** The errors of a second start. */
export async function refusals(t: Test, { copy, env }: Life): Promise<void> {
  await t.test("a second start on the same data is refused", async (t) => {
    const second = startIn(t, copy, { ...env, PORT: String(await freePort()) });
    t.equal(await second.ended, 1);
    isOneLineRefusal(t, second, /another Purser \(process [0-9]+\) already uses/);
    const reset = startIn(t, copy, env, RESET);
    t.equal(await reset.ended, 1);
    t.match(reset.output(), /Purser is running on .* Stop it first\./);
  });

  await t.test("a busy port is refused, and no process is left", async (t) => {
    const busy = createServer().listen(0, "127.0.0.1");
    await once(busy, "listening");
    t.teardown(() => busy.close());
    const { port: taken } = busy.address() as { port: number };
    const dataDir = join(copy.dir, ".other-data");
    const third = startIn(t, copy, { ...env, PORT: String(taken), DATA_DIR: dataDir });
    t.equal(await third.ended, 1);
    isOneLineRefusal(t, third, new RegExp(`port ${taken} is in use.*PORT=`));
    t.same(processesIn(dataDir), []);
  });

  await t.test("all configuration mistakes are listed", async (t) => {
    const bad = startIn(t, copy, { ...env, PORT: "99999", NETWORKS: "eip155:1234567" });
    t.equal(await bad.ended, 1);
    t.match(bad.output(), /PORT must be a whole number from 0 to 65535/);
    t.match(bad.output(), /NETWORKS names "eip155:1234567"/);
    t.notMatch(bad.output(), /^\s+at /m, "no stack trace");
  });
}

/** How a person or a supervisor stops `npm start`; each way must stop all processes in order. */
const STOPS = {
  // A terminal signals the whole process group, and npm forwards its own signal as well.
  "Ctrl-C": (pid: number) => process.kill(-pid, "SIGINT"),
  "SIGTERM to npm alone": (pid: number) => process.kill(pid, "SIGTERM"),
};

/** Kills and signals, the mildest last. */
export async function kills(
  t: Test,
  { copy, env, url, first }: Life,
  stop: keyof typeof STOPS,
): Promise<void> {
  await t.test(`killed with -9, it starts again, and stops with ${stop}`, async (t) => {
    first.process.kill("SIGKILL");
    await first.ended;
    await until(() => processesIn(copy.dir).length === 0, "every child is gone");
    const again = startIn(t, copy, env, NPM_START);
    await printed(again, READY);
    // The warning about the Node that runs the tests says nothing about the data.
    t.notMatch(again.output(), /Warning(?!: Node)/, "nothing was lost");
    t.notMatch(again.output(), /Building|Installing|Generating/, "nothing is built twice");
    t.equal(await answers(`${url}/api/ready`), 200);
    t.ok(processesIn(copy.dir).length >= 4, "npm, the server, Postgres and the chain run");
    STOPS[stop](again.process.pid ?? 0);
    t.equal(await endOf(again), 0, again.output());
    t.same(processesIn(copy.dir), []);
    await t.rejects(answers(`${url}/api/health`), "no response");
  });

  await t.test("SIGTERM during the start also stops everything", async (t) => {
    const early = startIn(t, copy, env);
    await printed(early, "Starting Postgres");
    early.process.kill("SIGTERM");
    t.equal(await early.ended, 0, early.output());
    t.same(processesIn(copy.dir), []);
    const reset = startIn(t, copy, env, RESET);
    t.equal(await reset.ended, 0);
    t.match(reset.output(), /Deleted the local data/);
  });
}

// Goal: `npm start` on a clone serves, says plainly what is wrong when it cannot, and leaves nothing running,
// for root in a folder nobody else may enter and for a normal user.
// Runs alone: it builds the web app and starts several whole servers.
import { once } from "node:events";
import { createServer } from "node:net";
import { join } from "node:path";
import t, { type Test } from "tap";
import { freePort } from "../../server/local/free-port.ts";
import {
  freshCopy,
  printed,
  processesIn,
  startIn,
  until,
  type FreshCopy,
  type Started,
} from "../helpers/fresh-copy.ts";

const READY = "Ctrl-C stops everything.";
const IS_ROOT = process.getuid?.() === 0;
const NOBODY = { uid: 65534, gid: 65534 };

/** Exactly one line on why, and no stack trace. */
function isOneLineRefusal(t: Test, started: Started, reason: RegExp): void {
  const lines = started.output().trim().split("\n");
  t.match(lines.at(-1), reason);
  t.equal(lines.filter((line) => line.startsWith("Purser could not start")).length, 1);
  t.notMatch(started.output(), /^\s+at /m, "no stack trace");
}

async function answers(url: string): Promise<number> {
  const response = await fetch(url, { signal: AbortSignal.timeout(10_000) });
  await response.arrayBuffer();
  return response.status;
}

async function lifeOf(t: Test, copy: FreshCopy): Promise<void> {
  const port = await freePort();
  const env = { PORT: String(port), DATA_DIR: join(copy.dir, ".data"), LOG_LEVEL: "warn" };
  const url = `http://127.0.0.1:${port}`;

  const first = startIn(t, copy, env);
  await printed(first, READY, 110_000);
  t.match(first.output(), `http://localhost:${port}`, "the banner names where to go");
  t.equal(await answers(`${url}/api/health`), 200);
  t.equal(await answers(`${url}/api/ready`), 200);
  t.equal(await answers(`${url}/`), 200, "the web app");

  await t.test("a second start on the same data is refused", async (t) => {
    const second = startIn(t, copy, { ...env, PORT: String(await freePort()) });
    t.equal(await second.ended, 1);
    isOneLineRefusal(t, second, /another Purser \(process [0-9]+\) already uses/);
    const reset = startIn(t, copy, env, "server/reset.mjs");
    t.equal(await reset.ended, 1);
    t.match(reset.output(), /Purser is running on .* Stop it first\./);
  });

  await t.test("a busy port is refused, and nothing is left running", async (t) => {
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

  await t.test("bad configuration is listed, all of it", async (t) => {
    const bad = startIn(t, copy, { ...env, PORT: "99999", NETWORKS: "eip155:1234567" });
    t.equal(await bad.ended, 1);
    t.match(bad.output(), /PORT must be at most 65535/);
    t.match(bad.output(), /NETWORKS names "eip155:1234567"/);
    t.notMatch(bad.output(), /^\s+at /m, "no stack trace");
  });

  await t.test("killed with -9, it leaves nothing running and starts again", async (t) => {
    first.process.kill("SIGKILL");
    await first.ended;
    await until(() => processesIn(copy.dir).length === 0, "every child is gone");
    const again = startIn(t, copy, env);
    await printed(again, READY);
    t.notMatch(again.output(), /Warning/, "nothing was lost");
    t.notMatch(again.output(), /Building|Installing|Generating/, "nothing is built twice");
    t.equal(await answers(`${url}/api/ready`), 200);
    // Ctrl-C in a terminal signals the whole process group.
    process.kill(-(again.process.pid ?? 0), "SIGINT");
    t.equal(await again.ended, 0, again.output());
    t.same(processesIn(copy.dir), []);
  });

  await t.test("SIGTERM while it starts, too, ends all of it", async (t) => {
    const early = startIn(t, copy, env);
    await printed(early, "Starting Postgres");
    early.process.kill("SIGTERM");
    t.equal(await early.ended, 0, early.output());
    t.same(processesIn(copy.dir), []);
    const reset = startIn(t, copy, env, "server/reset.mjs");
    t.equal(await reset.ended, 0);
    t.match(reset.output(), /Deleted the local data/);
  });
}

t.test(
  IS_ROOT ? "root, in a folder only root may enter" : "a normal user",
  { timeout: 240_000 },
  async (t) => lifeOf(t, freshCopy(t, 0o700)),
);

t.test(
  "a normal user, started by root",
  { timeout: 240_000, skip: !IS_ROOT && "not root: the test above is this one" },
  async (t) => lifeOf(t, freshCopy(t, 0o755, NOBODY)),
);

// Runs compiled test files again and again in one warm process, each time with another mutant. It ends a file at its
// first failure.
import * as fc from "fast-check";
import { Client } from "pg";
import t from "tap";
import { pathToFileURL } from "node:url";

/** What an instrumented file reads: https://stryker-mutator.io, `@stryker-mutator/instrumenter`. */
const switches = (globalThis.__stryker__ ??= {});
const TEMPLATE = "purser_template";
let runs = 0;
let hasFailed = false;

// A failing property is enough: no smaller example is looked for.
fc.configureGlobal({ endOnFailure: true });
stopAtFirstFailure();

/** The database of `settlement/changed-rows`, which every case leaves as it was. */
const keptRows = (globalThis.keptRows = {});

/** Functions of Postgres that the file called, read before its database is dropped. */
let called = new Set();
const plainQuery = Reflect.get(Client.prototype, "query");

function countCalls() {
  Client.prototype.query = async function (text, ...rest) {
    const [, name] = /^DROP DATABASE (test_\w+)/.exec(text) ?? [];
    if (name) for (const one of await functionsCalledIn(name)) called.add(one);
    return plainQuery.call(this, text, ...rest);
  };
}

async function withDatabase(name, use) {
  const url = new URL(process.env.PURSER_TEST_POSTGRES_URL);
  url.pathname = `/${name}`;
  const client = new Client({ connectionString: url.href });
  await client.connect();
  try {
    return await use((text) => plainQuery.call(client, text));
  } finally {
    await client.end();
  }
}

async function functionsCalledIn(name) {
  return withDatabase(name, async (query) => {
    const { rows } = await query("SELECT funcname FROM pg_stat_user_functions WHERE calls > 0");
    return rows.map(({ funcname }) => funcname);
  });
}

async function functionsCalledInKept() {
  const kept = await keptRows.prepared;
  if (!kept) return [];
  await kept.pool.query("SELECT pg_stat_force_next_flush()");
  const { rows } = await kept.pool.query(
    "SELECT funcname FROM pg_stat_user_functions WHERE calls > 0",
  );
  await kept.pool.query("SELECT pg_stat_reset()");
  return rows.map(({ funcname }) => funcname);
}

/** A failed assertion throws, and the tests of the file after it do not run. */
function stopAtFirstFailure() {
  let base = t;
  while (!Object.hasOwn(base, "fail") || !Object.hasOwn(base, "pass"))
    base = Object.getPrototypeOf(base);
  const [fail, threw] = ["fail", "threw"].map((name) => Reflect.get(base, name));
  let isThrown = false;
  base.fail = function (...args) {
    const isExpected = fail.apply(this, args);
    if (isExpected) return isExpected;
    hasFailed = true;
    if (isThrown) return isExpected;
    throw new Error("failed");
  };
  base.threw = function (...args) {
    isThrown = true;
    try {
      return threw.apply(this, args);
    } finally {
      isThrown = false;
    }
  };
}

/** After a failure the tests that are still waiting do nothing. */
const endingAtFailure = (t) =>
  new Proxy(t, {
    get(target, name) {
      const value = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      if (name !== "test") return value.bind(target);
      return (...args) => {
        const work = args.pop();
        return target.test(...args, async (t) => {
          switches.currentTestId = "test";
          return hasFailed ? undefined : work(t);
        });
      };
    },
  });

const send = (message) => process.send({ ofWorker: true, ...message });

async function run(t, { compiled, mutant, hitLimit }) {
  runs += 1;
  hasFailed = false;
  called = new Set();
  Object.assign(switches, {
    activeMutant: mutant,
    hitCount: 0,
    hitLimit,
    mutantCoverage: undefined,
    currentTestId: undefined,
  });
  const started = performance.now();
  const result = await t.test(String(runs), async (t) => {
    globalThis.testOfThisFile = endingAtFailure(t);
    await import(`${pathToFileURL(compiled).href}?run=${runs}`);
  });
  const ms = performance.now() - started;
  for (const one of await functionsCalledInKept()) called.add(one);
  const isOk = !hasFailed && result?.ok !== false;
  // A promise that an earlier run left behind was rejected, which ends all tests of the process.
  const isOver = t.ended;
  const { static: loaded = {}, perTest = {} } = switches.mutantCoverage ?? {};
  return {
    isOk,
    isOver,
    ms,
    rss: process.memoryUsage.rss(),
    loaded: Object.keys(loaded),
    ran: Object.keys(perTest.test ?? {}),
    called: [...called],
  };
}

t.test("mutants", { timeout: 360_000_000 }, async (t) => {
  for await (const message of messages()) {
    if (message.install) await install(message.install);
    else send(await run(t, message));
  }
});

async function install(sql) {
  try {
    await withDatabase(TEMPLATE, (query) => query(sql));
    // Its connections look for functions in the schema of the clock first.
    const inPublic = sql.replace("REPLACE FUNCTION ", "REPLACE FUNCTION public.");
    await (await keptRows.prepared)?.pool.query(inPublic);
    send({ isInstalled: true });
  } catch (error) {
    send({ isInstalled: false, why: String(error) });
  }
}

async function* messages() {
  const waiting = [];
  let wake = () => undefined;
  process.on("message", (message) => {
    waiting.push(message);
    wake();
  });
  process.on("disconnect", () => process.exit());
  // tap lets go of the channel.
  process.channel.ref();
  countCalls();
  send({ isReady: true });
  for (;;) {
    while (waiting.length > 0) yield waiting.shift();
    await new Promise((resolve) => (wake = resolve));
  }
}

// Goal: the primary dies under load and its standby is promoted: nothing is paid twice, nothing that was
// acknowledged is lost, and nothing is written to an old primary that comes back.
// Runs alone
// Tier: full (builds a cluster of Postgres servers).
import { spawnSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import t, { type Test } from "tap";
import type { Pool } from "pg";
import { getAddress } from "viem";
import { createPool } from "../../server/infra/db/pool.ts";
import { checkDatabase } from "../../server/infra/db/settings.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import { randomAddress, randomNonce } from "../helpers/engine.ts";
import { until } from "../helpers/until.ts";
import {
  checkLedgers,
  checkOnce,
  checkRows,
  checkOutcomes,
  isOpen,
  readChain,
  type Rows,
} from "../soak/reconciliation.ts";
import {
  callOnce,
  callUntilAnswered,
  openAgent,
  openOwner,
  usdc,
  type Notes,
  type SoakContext,
} from "../soak/clients.ts";
import { Random } from "../helpers/random.ts";
import {
  soakPayers,
  thirdPartyPays,
  type LoadTargets,
  type Posted,
} from "../soak/third-parties.ts";
import { composeServers, Server, startReplicas, urlOf } from "./cluster.ts";

const AGENTS = 3;
/** Prints figures to the run's output, where TAP comments would not be shown. */
const print = (text: string): void => console.error(`# standby: ${text}`);
const FUNDS = 10n ** 9n;
/**
 * The number of payments of each kind, and of responses in each fault, after which a phase ends; a count
 * instead of a time.
 */
const SOME = 12;
/** Calls to an unreachable database end after a few seconds each. */
const HANGS_MS = 60_000;
/** Stock clients give up after this time. */
const CALLERS_GIVE_UP_MS = 30_000;

async function readRows(pool: Pool): Promise<Rows> {
  const [settlements, payments] = await Promise.all([
    pool.query<Rows["settlements"][number]>(
      "SELECT id, kind, from_address, nonce, status, tx_hash, error_reason FROM settlements",
    ),
    pool.query<Rows["payments"][number]>(
      `SELECT id, agent_id, kind, status, amount::text, nonce, tx_hash, created_at, updated_at
         FROM payments WHERE status <> 'blocked'`,
    ),
  ]);
  return { settlements: settlements.rows, payments: payments.rows };
}

/** A new process without any state from before. */
const FRESH = `
  import { createPool } from "./server/infra/db/pool.ts";
  const pool = createPool(process.env.DATABASE_URL);
  const { rows } = await pool.query("SELECT inet_server_port() AS port");
  console.log("port " + rows[0].port);
  await pool.end();`;

/** The response to a client that sends a request once, and its duration. */
interface SingleAnswer {
  atMs: number;
  tookMs: number;
  status: number | undefined;
  code: unknown;
}

async function world(t: Parameters<typeof testChain>[0], databaseUrl: string) {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const replicas = await startReplicas(t, chain, { databaseUrl, count: 2 });
  const notes: Notes = { reported: [], counts: new Map(), faults: [], lastPaidMs: 0 };
  const ended = new AbortController();
  let next = 1_000n;
  const context = {
    world: { chain, replicas, publicUrl: replicas[0]?.url.replace("127.0.0.1", "localhost") },
    random: new Random(Date.now()),
    notes,
    agents: [],
    nextAmount: () => (next += 1n),
    signal: ended.signal,
  } as unknown as SoakContext;
  const owner = await openOwner(context);
  const payees = Array.from({ length: 3 }, () => getAddress(randomAddress()));
  for (let index = 0; index < AGENTS; index += 1)
    context.agents.push(
      await openAgent(context, owner, {
        allowlist: payees,
        limitAtomic: FUNDS,
        fundsAtomic: FUNDS,
      }),
    );
  const targets: LoadTargets = {
    payees,
    unlistedPayee: getAddress(randomAddress()),
    sellerUrls: [],
    payers: soakPayers(20, context.random),
    merchants: Array.from({ length: 3 }, () => getAddress(randomAddress())),
  };
  const rich = [...context.agents.map(({ wallet }) => wallet), ...targets.payers];
  await chain.mint(
    rich.map((one) => (typeof one === "string" ? one : one.address)),
    FUNDS,
  );
  return { chain, replicas, context, targets, ended, notes };
}

/** Agents that retry, third parties, and a client that sends requests once and records the responses. */
function load({ context, targets, replicas, ended }: Awaited<ReturnType<typeof world>>) {
  const { notes, random, agents } = context;
  const posted: Posted[] = [];
  const answers: SingleAnswer[] = [];
  const loop = async (work: () => Promise<unknown>, restMs: number): Promise<void> => {
    while (!ended.signal.aborted) {
      await work();
      await sleep(random.int(restMs / 2, restMs));
    }
  };
  const spend = async (index: number): Promise<void> => {
    const agent = agents[index % AGENTS];
    if (!agent) return;
    const amount = context.nextAmount();
    const to = random.pick(targets.payees);
    const key = randomNonce();
    const startMs = performance.now();
    const reply = await callUntilAnswered(context, "/api/agents/spend", {
      headers: () => ({ authorization: `Bearer ${agent.apiKey}`, "idempotency-key": key }),
      body: { recipient: to, amount: usdc(amount) },
    });
    const isPaid = reply?.status === 200;
    if (isPaid) notes.lastPaidMs = performance.now();
    notes.reported.push({
      kind: "spend",
      outcome: isPaid ? "paid" : reply?.body["code"] === "settlement_failed" ? "failed" : "unknown",
      code: String(reply?.body["code"]),
      from: agent.wallet,
      to,
      amountAtomic: amount,
      ...(typeof reply?.body["paymentId"] === "string" && { paymentId: reply.body["paymentId"] }),
      isClear: reply?.unanswered === 0,
      tookMs: performance.now() - startMs,
    });
  };
  const askOnce = async (): Promise<void> => {
    const agent = random.pick(agents);
    const atMs = performance.now();
    const answer = await callOnce(`${random.pick(replicas).url}/api/agents/spend`, {
      headers: { authorization: `Bearer ${agent.apiKey}` },
      body: { recipient: targets.unlistedPayee, amount: "0.01" },
    });
    const tookMs = performance.now() - atMs;
    answers.push({ atMs, tookMs, status: answer?.status, code: answer?.body["code"] });
  };
  const loops = Promise.all([
    ...Array.from({ length: 2 * AGENTS }, (_, index) => loop(() => spend(index), 100)),
    ...Array.from({ length: 3 }, () => loop(() => thirdPartyPays(context, targets, posted), 200)),
    ...Array.from({ length: 4 }, () => loop(askOnce, 100)),
  ]);
  return { answers, loops };
}

/**
 * Work that does not complete within some seconds counts as past its deadline: the chain's clock is moved
 * forward, and unsigned payments are dated back.
 */
async function skipDeadlines(
  { testClient }: Pick<TestChain, "testClient">,
  pool: Pool,
  isOver: () => Promise<boolean>,
): Promise<void> {
  const fromMs = performance.now();
  let isHurried = false;
  await until(async () => {
    if (await isOver()) return true;
    if (!isHurried && performance.now() - fromMs > 3_000) {
      isHurried = true;
      await testClient.increaseTime({ seconds: 150 });
      await pool.query(
        "UPDATE payments SET created_at = created_at - interval '2 minutes' WHERE status = 'reserved'",
      );
      await pool.query("SELECT graphile_worker.add_job('sweep-unsigned')");
    }
    return false;
  }, 40_000);
}

const paidAfter = (notes: Notes, ms: number): Promise<void> =>
  until(() => notes.lastPaidMs > ms, 60_000);

const answeredSince = (answers: SingleAnswer[], sinceMs: number): Promise<void> =>
  until(() => answers.filter(({ atMs }) => atMs > sinceMs).length >= SOME, HANGS_MS);

/** The responses to a client in that time: each has a clear outcome, and arrives before clients give up. */
function checkAnswers(t: Pick<Test, "ok">, answers: SingleAnswer[], what: string): void {
  const counts = new Map<string, number>();
  for (const { status, code } of answers) {
    const words = `${status} ${String(code)}`;
    counts.set(words, (counts.get(words) ?? 0) + 1);
  }
  const slowest = Math.max(0, ...answers.map(({ tookMs }) => tookMs));
  print(
    `${what}: ${[...counts].map(([words, times]) => `${times} x ${words}`).join(", ")}; the slowest after ${Math.round(slowest)} ms`,
  );
  t.ok(answers.length > 0, `${what}: a response was received`);
  const unclear = answers.filter(
    ({ status, code }) =>
      !(status === 403 && code === "recipient_not_allowed") &&
      !(status === 503 && typeof code === "string"),
  );
  t.ok(unclear.length === 0, `${what}: every answer is clear ${JSON.stringify(unclear[0] ?? "")}`);
  t.ok(slowest < CALLERS_GIVE_UP_MS, `${what}: in time (${Math.round(slowest)} ms)`);
}

t.test(
  "the primary is killed under load, and its standby promoted",
  { timeout: 200_000 },
  async (t) => {
    const startedMs = performance.now();
    const phase = (name: string): void =>
      print(`${((performance.now() - startedMs) / 1_000).toFixed(1)} s: ${name}`);
    // Every commit waits until the standby has it on disk.
    const { primary, standby, databaseUrl } = await composeServers(t);
    t.same(await checkDatabase({ databaseUrl, databasePooledUrl: undefined }), [], "fit");
    const made = await world(t, databaseUrl);
    phase("everything is started");
    const { chain, context, ended, notes, replicas } = made;
    const { answers, loops } = load(made);
    const ready = async () =>
      (await callOnce(`${replicas[0]?.url}/api/ready`, { method: "GET" }))?.body["parts"] as
        | Record<string, { ok: boolean; detail: string }>
        | undefined;
    const paidOf = (wanted: "spend" | "facilitated") =>
      notes.reported.filter(({ kind, outcome }) => kind === wanted && outcome === "paid").length;
    await until(() => paidOf("spend") >= SOME && paidOf("facilitated") >= SOME, HANGS_MS);
    t.match(await ready(), { database: { ok: true, detail: /every commit waits for a standby/ } });

    // The standby does not confirm, so nothing that is not replicated may be acknowledged or sent.
    standby.signal("SIGSTOP");
    const stoppedMs = performance.now();
    await until(
      async () => /^degraded: .*standby/.test((await ready())?.["database"]?.detail ?? ""),
      HANGS_MS,
    );
    t.match(await ready(), { database: { ok: true } });
    await answeredSince(answers, stoppedMs);
    standby.signal("SIGCONT");
    const wokenMs = performance.now();
    await paidAfter(notes, wokenMs);
    print(
      `a standby that stood still: paid again ${Math.round(notes.lastPaidMs - wokenMs)} ms after it woke up`,
    );
    checkAnswers(
      t,
      answers.filter(({ atMs }) => atMs > stoppedMs && atMs < wokenMs),
      "while the standby is stopped",
    );

    phase("the primary is killed");
    const killedMs = performance.now();
    await primary.kill();
    await answeredSince(answers, killedMs + 500);
    const promotingMs = performance.now();
    await standby.promote();
    const promotedMs = performance.now();
    await paidAfter(notes, promotedMs);
    const ms = (from: number) => Math.round(notes.lastPaidMs - from);
    print(
      `failover: promoted in ${Math.round(promotedMs - promotingMs)} ms, paid again ${ms(promotedMs)} ms later; ${ms(killedMs)} ms after the kill`,
    );
    checkAnswers(
      t,
      answers.filter(({ atMs }) => atMs > killedMs + 500 && atMs < promotingMs),
      "while there is no primary",
    );

    // An operator starts the old machine again, and it accepts writes.
    await primary.start(["synchronous_standby_names="]);
    const writtenTo = async () => {
      const { rows } = await primary.pool.query(
        `SELECT (SELECT count(*)::int FROM settlements) AS settlements, (SELECT count(*)::int FROM payments) AS payments,
              (SELECT max(lease_until) FROM relayer_lanes) AS lease`,
      );
      return rows;
    };
    const before = await writtenTo();
    // Long enough for new connections, and for the relayer lanes and sweeps to run.
    const paidThen = paidOf("spend");
    await paidAfter(notes, performance.now() + 3_000);
    await until(() => paidOf("spend") >= paidThen + SOME, HANGS_MS);
    t.same(await writtenTo(), before, "nothing is written to the old primary");
    const connectionsOf = async (among?: number[]) => {
      const { rows } = await primary.pool.query<{ pid: number }>(
        `SELECT pid FROM pg_stat_activity
          WHERE backend_type = 'client backend' AND application_name <> 'the test'
            AND ($1::int[] IS NULL OR pid = ANY($1))`,
        [among],
      );
      return rows.map(({ pid }) => pid);
    };
    const seen = await connectionsOf();
    // No connection to it remains.
    await until(async () => (await connectionsOf(seen)).length === 0, HANGS_MS);
    await primary.kill();
    phase("the load ends");
    ended.abort();
    await loops;
    const rowsNow = () => readRows(standby.pool);
    phase("the last responses have arrived");
    await skipDeadlines(chain, standby.pool, async () => {
      const { settlements, payments } = await rowsNow();
      return ![...settlements, ...payments].some(isOpen);
    });
    phase("no payment is open");
    const chainLog = await readChain(chain);
    const rows = await rowsNow();
    const paid = notes.reported.filter(({ outcome }) => outcome === "paid");
    print(
      `${paid.length} of ${notes.reported.length} reported paid; ${chainLog.moves.length} on the chain`,
    );
    for (const kind of ["spend", "facilitated"] as const)
      t.ok(paid.filter((one) => one.kind === kind).length >= SOME, `${kind}: some were paid`);
    const settled = new Set(
      rows.settlements
        .filter(({ status }) => status === "settled")
        .flatMap(({ id, nonce }) => [id, nonce]),
    );
    const missing = paid.filter(({ paymentId, nonce }) => !settled.has(nonce ?? paymentId ?? ""));
    t.same(missing, [], "every acknowledged payment is settled in the new primary");
    for (const { what, looked, wrong } of [
      checkOnce(chainLog),
      ...checkOutcomes(chainLog, rows, notes.reported),
      ...checkRows(chainLog, rows),
      checkLedgers(chainLog, rows, context.agents),
    ])
      t.same(wrong, [], `${what} (of ${looked})`);
  },
);

t.test("after a promotion the service leaves an old primary that still runs", async (t) => {
  const old = await Server.make(t);
  const next = await old.follower(t, "other");
  const databaseUrl = urlOf(old, next);
  t.match(await checkDatabase({ databaseUrl, databasePooledUrl: undefined }), [
    /no commit waits for a standby/,
  ]);
  const portOf = async (pool: Pool) =>
    (await pool.query<{ port: number }>("SELECT inet_server_port() AS port")).rows[0]?.port;
  const open = (url: string): Pool => {
    const pool = createPool(url, { maxConnections: 1 });
    pool.on("error", () => undefined);
    pool.on("connect", (client) => client.on("error", () => undefined));
    t.teardown(() => pool.end());
    return pool;
  };
  const pool = open(databaseUrl);
  t.equal(await portOf(pool), old.port, "the standby is not used");
  const held = await pool.connect();
  await held.query("BEGIN");
  await next.promote();
  const promotedMs = performance.now();
  await t.rejects(
    until(async () => {
      await held.query("SELECT 1");
      return false;
    }),
    /Connection terminated|not queryable/,
    "connections to the old primary are closed",
  );
  held.release(true);
  t.equal(await portOf(pool), next.port);
  print(`noticed ${Math.round(performance.now() - promotedMs)} ms after the promotion`);
  await t.rejects(open(urlOf(old)).query("SELECT 1"), /it is an old primary/);
  const fresh = spawnSync(
    process.execPath,
    ["--import=tsx", "--input-type=module", "--eval", FRESH],
    {
      env: { PATH: process.env["PATH"] ?? "", DATABASE_URL: databaseUrl },
      encoding: "utf8",
      timeout: 60_000,
    },
  );
  t.match(fresh.stdout, `port ${next.port}`, `a new process checks both servers ${fresh.stderr}`);

  const single = open(next.url);
  const pid = async (pool: Pool) =>
    (await pool.query<{ pid: number }>("SELECT pg_backend_pid() AS pid")).rows[0]?.pid;
  const first = await pid(single);
  t.equal(await pid(single), first, "kept");
  await single.query("SET default_transaction_read_only = on");
  await t.rejects(single.query("CREATE TABLE one ()"), { code: "25006" });
  // The service leaves a server that became read-only.
  await until(async () => (await pid(single)) !== first);

  // With a default of "off", the server would confirm commits that a crash loses.
  await next.pool.query("ALTER DATABASE purser SET synchronous_commit = off");
  const { rows } = await open(next.url).query("SHOW synchronous_commit");
  t.same(rows, [{ synchronous_commit: "on" }]);
  t.match(await checkDatabase({ databaseUrl: next.url, databasePooledUrl: undefined }), [
    /synchronous_commit=off/,
  ]);
});

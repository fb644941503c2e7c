// Goal: one command with WORKERS=2 is one service on one port: whichever process is killed under load, also the
// one that holds the relayer's lane, every payment is made exactly once, every request accepted before a stop is
// answered, no process is left behind, and a service that cannot run exits with a message.
// Tier: full (starts whole deployments).
import { ChildProcess, spawn } from "node:child_process";
import cluster, { type Worker } from "node:cluster";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Agent, request } from "undici";
import t from "tap";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { freePort } from "../../server/local/free-port.ts";
import { Primary, type WorkerTimings } from "../../server/primary.ts";
import { AMPLE_GAS, testApp, testEnvironment } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { childrenOf } from "../soak/world.ts";
import { usdcOf } from "../spending/ledger.helper.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const PAYEE = "0x00000000000000000000000000000000000c0ffe";
const TOKEN = "a-token-for-metrics";
const AT_ONCE = 6;
const START_MS = 60_000;
const POOL_OF_BOTH = { name: 'purser_database_pool_size{pool="money"}', size: 16 };

await prepare((line) => t.comment(line), [ensureServerBuild]);
const ctx = await testApp(t, { env: { GAS_BUDGET_5042002: AMPLE_GAS } });
const owner = await signIn(ctx);
const agents = await Promise.all(
  Array.from({ length: AT_ONCE }, () =>
    createAgent(ctx, owner, { dailyLimit: "1000", allowlist: [PAYEE] }),
  ),
);
for (const agent of agents) await ctx.chain.mint(agent.walletAddress, 100_000_000n);
const masterKeys = ctx.config.masterKeys
  .flatMap(({ kid, key }) => (key ? [`${kid}:${Buffer.from(key).toString("base64")}`] : []))
  .join(",");
// It created the wallets and is closed.
await ctx.app.close();

interface Service {
  command: ChildProcess;
  url: string;
  output: () => string;
  ended: Promise<unknown[]>;
}

const environment = (port: number) => ({
  ...testEnvironment({ databaseUrl: ctx.database.url, chain: ctx.chain, port }),
  MASTER_KEYS: masterKeys,
  METRICS_TOKEN: TOKEN,
  GAS_BUDGET_5042002: AMPLE_GAS,
  WORKERS: "2",
});

async function serve(): Promise<Service> {
  const port = await freePort();
  const command = spawn(process.execPath, ["server/start.mjs", "--built"], {
    cwd: ROOT,
    env: { PATH: process.env["PATH"], ...environment(port) },
    stdio: ["ignore", "pipe", "pipe"],
  });
  t.teardown(() => command.kill("SIGKILL"));
  let output = "";
  for (const stream of [command.stdout, command.stderr])
    stream.on("data", (chunk: Buffer) => (output += chunk.toString()));
  const ended = once(command, "exit");
  await until(() => output.includes("Purser runs at") || command.exitCode !== null, START_MS);
  if (command.exitCode !== null) throw new Error(`it did not start: ${output}`);
  return { command, url: `http://127.0.0.1:${port}`, output: () => output, ended };
}

const titleOf = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim();
  } catch {
    return "";
  }
};
const childOf = ({ command }: Service, title: string): number | undefined =>
  childrenOf(command.pid ?? 0).find((pid) => titleOf(pid) === title);
/** The worker whose process holds the relayer's lane: the lease names its owner as host:pid:id. */
async function laneHolder(service: Service): Promise<{ title: string; pid: number }> {
  const { rows } = await ctx.database.pool.query<{ pid: number }>(
    `SELECT split_part(lease_owner, ':', 2)::int AS pid FROM relayer_lanes
      WHERE lease_until > clock_timestamp() AND address <> $1`,
    [`0x${"0".repeat(40)}`],
  );
  const pid = rows[0]?.pid ?? 0;
  const title = titleOf(pid);
  if (!childrenOf(service.command.pid ?? 0).includes(pid)) throw new Error(`no lane is held`);
  return { title, pid };
}

// A new connection for each request, so that both workers receive some.
const dispatcher = new Agent({ pipelining: 0, headersTimeout: START_MS / 2 });
t.teardown(() => dispatcher.destroy());
interface ServiceResponse {
  status: number;
  body: string;
}
async function call(url: string, options: object = {}): Promise<ServiceResponse> {
  const { statusCode, body } = await request(url, { dispatcher, ...options });
  return { status: statusCode, body: await body.text() };
}

/** Each response to a payment's request that was not "paid". */
interface Trouble {
  number: number;
  status: number;
  said: string;
}

let payments = 0;
const paidBefore = await usdcOf(ctx, PAYEE);
/** As any client does: an unanswered request is retried with the same key until it is paid. */
async function pay(url: string, troubles: Trouble[]): Promise<void> {
  const number = (payments += 1);
  const options = {
    method: "POST",
    headers: { ...agents[number % AT_ONCE]?.headers, "idempotency-key": `payment-${number}` },
    body: JSON.stringify({ recipient: PAYEE, amount: "0.01" }),
  };
  const untilMs = performance.now() + START_MS;
  for (;;) {
    const heard = await call(`${url}/api/agents/spend`, options).catch((error: Error) => ({
      status: 0,
      body: error.message,
    }));
    if (heard.status === 200) return;
    troubles.push({ number, status: heard.status, said: heard.body.slice(0, 150) });
    if (performance.now() > untilMs)
      throw new Error(`payment ${number} is not made: ${heard.status} ${heard.body}`);
    await sleep(100); // As a client waits for a busy server.
  }
}

/** Sends payments with this concurrency until `during` has ended. */
async function underLoad(url: string, during: () => Promise<void>): Promise<Trouble[]> {
  const troubles: Trouble[] = [];
  const over = new AbortController();
  const loads = agents.map(async () => {
    while (!over.signal.aborted) await pay(url, troubles);
  });
  const before = payments;
  const loaded = until(() => payments > before + AT_ONCE * 2, START_MS);
  await loaded.then(during).finally(() => over.abort());
  await Promise.all(loads);
  return troubles;
}

t.test("two workers share the port and compete for the relayer's lane", async (t) => {
  const service = await serve();
  const { url } = service;
  const metrics = async (): Promise<string> => {
    const headers = { authorization: `Bearer ${TOKEN}` };
    return (await call(`${url}/metrics`, { headers })).body;
  };
  const seen = async (metric: string): Promise<number> => {
    const line = (await metrics()).split("\n").find((each) => each.startsWith(metric));
    return Number(line?.split(" ").at(-1));
  };
  // A gauge counts only workers that serve: without a second one, the next kill would leave nobody who listens.
  const isWhole = async (): Promise<boolean> =>
    childrenOf(service.command.pid ?? 0).length === 2 &&
    (await seen(POOL_OF_BOTH.name).catch(() => 0)) === POOL_OF_BOTH.size &&
    (await call(`${url}/api/ready`).catch(() => ({ status: 0 }))).status === 200;
  const newOne = async (title: string, old: number | undefined): Promise<void> => {
    await until(() => ![undefined, old].includes(childOf(service, title)), START_MS);
    await until(isWhole, START_MS);
  };

  await t.test("metrics are those of both processes together", async (t) => {
    await until(isWhole, START_MS);
    for (let count = 0; count < 10; count += 1) await call(`${url}/api/health`);
    const health = 'purser_http_request_seconds_count{method="GET",route="/api/health"';
    // Each worker reports the sum over both processes.
    t.same([await seen(health), await seen(health), await seen(health)], [10, 10, 10]);
    t.equal(await seen("purser_build_info"), 1);
    await until(async () => (await seen("purser_lane_held")) === 1, START_MS);
    t.equal(await seen(POOL_OF_BOTH.name), POOL_OF_BOTH.size);
    const usedBefore = await seen("process_cpu_seconds_total");
    const { pid } = await laneHolder(service);
    process.kill(pid, "SIGSTOP");
    // A request that the hanging worker received waits until it continues.
    const whileItHangs = await Promise.any(Array.from({ length: 4 }, () => metrics()));
    process.kill(pid, "SIGCONT");
    t.match(whileItHangs, /^purser_lane_held\S* 0$/m, "its gauges are left out");
    const used = /^process_cpu_seconds_total (\S+)$/m.exec(whileItHangs)?.[1];
    t.ok(Number(used) >= usedBefore, "its counters are kept");
    await until(async () => (await seen("purser_lane_held")) === 1, START_MS);
  });

  await t.test("a stock MCP client works, whichever worker receives its requests", async (t) => {
    const [agent] = agents;
    const headers = { authorization: `Bearer ${agent?.apiKey}`, connection: "close" };
    const client = new Client({ name: "test", version: "1" });
    const transport = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
      requestInit: { headers },
    });
    await client.connect(transport);
    t.teardown(() => client.close());
    const answers = await Promise.all(
      Array.from({ length: 8 }, () => client.callTool({ name: "wallet_status", arguments: {} })),
    );
    t.ok(
      answers.every(({ isError }) => isError !== true),
      JSON.stringify(answers[0]).slice(0, 300),
    );
    const answeredBy = new Set(
      service
        .output()
        .split("\n")
        .flatMap((line) =>
          line.includes('"path":"/mcp"') ? [/"worker":"(\w+)"/.exec(line)?.[1]] : [],
        ),
    );
    t.same(answeredBy, new Set(["1", "2"]), "the log names the worker");
  });

  await t.test("killed under load: the holder of the lane, and then the next one", async (t) => {
    const troubles = await underLoad(url, async () => {
      for (let kills = 0; kills < 2; kills += 1) {
        await until(() => laneHolder(service).then(Boolean, () => false), START_MS);
        const { title, pid } = await laneHolder(service);
        process.kill(pid, "SIGKILL");
        await newOne(title, pid);
      }
    });
    t.comment(`responses after two kills: ${JSON.stringify(troubles)}`);
    // Counts payments instead of responses: the number of retries depends on how long a restart takes.
    const payers = new Set(troubles.map(({ number }) => number));
    t.ok(
      payers.size <= AT_ONCE * 4,
      "only payments in progress in the killed processes are affected",
    );
    const cut = troubles.filter(({ status }) => status === 0);
    t.ok(cut.length <= AT_ONCE * 4, `and each was interrupted once: ${JSON.stringify(cut)}`);
    t.same(
      troubles.filter(({ status }) => ![0, 409, 503, 504].includes(status)),
      [],
      "the others are told to retry",
    );
    const counted = await seen(
      'purser_http_request_seconds_count{method="GET",route="/api/health"',
    );
    t.equal(counted, 10, "the counters of killed processes are kept");
    const restarts = await Promise.all(
      ["1", "2"].map((worker) => seen(`purser_worker_restarts_total{worker="${worker}"}`)),
    );
    t.equal((restarts[0] ?? 0) + (restarts[1] ?? 0), 2);
  });

  await t.test("a stop signal to one worker alone changes nothing", async (t) => {
    const worker = childOf(service, "purser worker 2");
    const troubles = await underLoad(url, async () => {
      process.kill(worker ?? 0, "SIGTERM");
      const before = payments;
      await until(() => payments > before + AT_ONCE * 2, START_MS);
    });
    t.same(troubles, []);
    t.equal(childOf(service, "purser worker 2"), worker);
  });

  await t.test(
    "SIGTERM under load: readiness fails first, and every request is answered",
    async (t) => {
      const answers: number[] = [];
      const failed: string[] = [];
      const leaving = new AbortController();
      const loads = agents.map(async () => {
        while (!leaving.signal.aborted) {
          payments += 1;
          const options = {
            method: "POST",
            headers: {
              ...agents[payments % AT_ONCE]?.headers,
              "idempotency-key": `last-${payments}`,
            },
            body: JSON.stringify({ recipient: PAYEE, amount: "0.01" }),
          };
          const heard = await call(`${url}/api/agents/spend`, options).catch((error: Error) => {
            failed.push(error.message);
            return { status: 0, body: "" };
          });
          answers.push(heard.status);
        }
      });
      await until(() => answers.length > AT_ONCE, START_MS);
      service.command.kill("SIGTERM");
      // As a load balancer does: it checks readiness and sends no new requests. The service keeps listening
      // for a few seconds by the clock; after that this would fail.
      await until(async () => (await call(`${url}/api/ready`)).status === 503, START_MS);
      leaving.abort();
      await Promise.all(loads);
      t.same(failed, []);
      t.ok(
        answers.every((status) => status === 200),
        `${answers.length} answers`,
      );
      t.same(await service.ended, [0, null], "the service exits by itself");
      await t.rejects(call(`${url}/api/health`), "the port is closed");
    },
  );

  t.equal(
    (await usdcOf(ctx, PAYEE)) - paidBefore,
    BigInt(payments) * 10_000n,
    "each payment was made once",
  );
});

t.test("when the parent is killed, no child is left", async (t) => {
  const service = await serve();
  const children = childrenOf(service.command.pid ?? 0);
  t.equal(children.length, 2);
  service.command.kill("SIGKILL");
  await service.ended;
  await until(() => children.every((pid) => titleOf(pid) === ""), START_MS);
  t.pass("all processes have ended");
});

t.test("a process that dies repeatedly ends the service with a message", async (t) => {
  const service = await serve();
  const old = new Set<number>();
  const killing = setInterval(() => {
    // Includes new processes that have not set their title yet.
    const pid = childrenOf(service.command.pid ?? 0).find(
      (each) => titleOf(each) === "purser worker 1" || (old.size > 0 && !known.has(each)),
    );
    if (pid === undefined || old.has(pid)) return;
    old.add(pid);
    process.kill(pid, "SIGKILL");
  }, 10);
  const known = new Set(childrenOf(service.command.pid ?? 0));
  t.teardown(() => clearInterval(killing));
  t.same(await service.ended, [1, null]);
  clearInterval(killing);
  t.equal(old.size, 30);
  t.match(service.output(), /Purser stops: worker 1 ended 30 times in a row/);
  t.ok(
    [...known].every((pid) => titleOf(pid) === ""),
    "the other processes have ended too",
  );
});

/**
 * Child processes that send the service's messages, and end or hang on request. Their lifetime is measured in
 * real time by the parent; it is far from the decisive limit, so that a busy machine does not change the
 * result.
 */
const CHILD = `
  const [mode] = process.argv.slice(2);
  const block = (ms) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
  // A message that arrives meanwhile is lost.
  if (mode === "loads slowly") await new Promise((done) => setTimeout(done, 2_000));
  process.on("message", ({ type }) => {
    if (type === "ping") process.send({ type: "pong" });
    if (type === "stop") process.exit(0);
  });
  if (mode === "says why it fails")
    process.send({ type: "failed", reason: "no database" }, () => process.exit(1));
  else if (mode !== "never ready") {
    process.send({ type: "ready" });
    if (mode === "hangs") setTimeout(() => block(60_000), 100);
    if (mode.startsWith("ends after")) setTimeout(() => process.exit(7), Number(mode.slice(11)));
  }
`;

function forked(exec: string, args: string[], env: object = {}): Worker {
  cluster.setupPrimary({ exec, args, execArgv: [] });
  const child = cluster.fork(env);
  t.teardown(() => child.process.kill("SIGKILL"));
  return child;
}

/** As if no file descriptors were left: the process never existed and has no channel. */
function neverForked(): Worker {
  const child = new ChildProcess();
  const { Worker: Made } = cluster as unknown as { Worker: new (options: object) => Worker };
  const worker = new Made({ process: child });
  process.nextTick(() => child.emit("error", new Error("spawn EMFILE")));
  return worker;
}

/**
 * The parent process with one worker: each fork uses the next mode, and after the last one works normally.
 */
function starter(exec: string, modes: string[], patience: Partial<WorkerTimings>) {
  const said: string[] = [];
  const left = [...modes];
  let forks = 0;
  const primary = new Primary({
    workers: 1,
    log: (fields, text) => said.push(`${text} ${(fields as { reason?: string }).reason ?? ""}`),
    onGivenUp: (reason) => said.push(`given up: ${reason}`),
    fork() {
      forks += 1;
      const mode = left.shift() ?? "well";
      if (mode === "cannot be forked") throw new Error("spawn ENOMEM");
      return mode === "never was" ? neverForked() : forked(exec, [mode]);
    },
    timings: { firstPauseMs: 1, longestPauseMs: 20, ...patience },
  });
  return { primary, said, forks: () => forks };
}

t.test("the parent survives every fault of its children", async (t) => {
  const exec = `${t.testdir({ "child.mjs": CHILD })}/child.mjs`;
  const scenario = async (
    modes: string[],
    patience: Partial<WorkerTimings> = {},
  ): Promise<string[]> => {
    const { primary, said, forks } = starter(exec, modes, patience);
    await primary.start();
    await until(
      () => forks() > modes.length || (said.at(-1) ?? "").startsWith("given up"),
      START_MS / 2,
    );
    t.ok(await primary.stop(), `${modes.join(", ")}: those that are left end by themselves`);
    return said;
  };
  const stoppedWhileLoading = async (): Promise<void> => {
    const { primary } = starter(exec, ["loads slowly"], {});
    const starting = primary.start();
    t.ok(await primary.stop(), "a stop that comes too early is repeated");
    await starting;
  };
  const neverReady = async (): Promise<void> => {
    const patience = { pingMs: 100, mostPingsUntilReady: 30 };
    const { primary } = starter(exec, ["never ready"], patience);
    await t.rejects(primary.start(), { message: "it was not ready for 3 s" });
    await primary.stop();
  };
  const saysWhy = async (): Promise<void> => {
    const { primary } = starter(exec, ["says why it fails"], {});
    await t.rejects(primary.start(), { message: "no database" });
    await primary.stop();
  };
  const [hung, failed, lived, died] = await Promise.all([
    scenario(["hangs"], { pingMs: 500, mostPings: 12 }),
    scenario(["ends after 0", "cannot be forked", "never was", "says why it fails"]),
    scenario(["ends after 3000", "ends after 3000"], {
      longLifeMs: 100,
      mostShortLives: 2,
    }),
    scenario(["ends after 0", "never was", "ends after 0"], { mostShortLives: 3 }),
    stoppedWhileLoading(),
    neverReady(),
    saysWhy(),
  ]);
  const again = "worker 1 ended; starting it again";
  t.same(hung, [`${again} it did not respond for 6 s`]);
  t.same(
    failed,
    [
      `${again} code 7`,
      `${again} it could not be started: spawn ENOMEM`,
      `${again} spawn EMFILE`,
      `${again} no database`,
    ],
    "each death is logged, and none ends the service",
  );
  t.same(
    lived,
    [`${again} code 7`, `${again} code 7`],
    "a death after a long life is not counted as part of a series",
  );
  t.same(died.slice(0, 2), [`${again} code 7`, `${again} spawn EMFILE`]);
  t.match(died[2], /^given up: worker 1 ended 3 times in a row .*last reason: code 7/);
});

// Goal: one command with WORKERS=2 is one service on one port: whichever process is killed or stopped under load, every payment is made exactly once, every accepted request of a stop is answered, nothing is left running, and what cannot live ends with a sentence.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Agent, request } from "undici";
import t from "tap";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { freePort } from "../../server/local/free-port.ts";
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
// It made the wallets, and is gone.
await ctx.app.close();

interface Service {
  command: ChildProcess;
  url: string;
  output: () => string;
  ended: Promise<unknown[]>;
}

async function serve(): Promise<Service> {
  const port = await freePort();
  const command = spawn(process.execPath, ["server/start.mjs", "--built"], {
    cwd: ROOT,
    env: {
      PATH: process.env["PATH"],
      ...testEnvironment({ databaseUrl: ctx.database.url, chain: ctx.chain, port }),
      MASTER_KEYS: masterKeys,
      METRICS_TOKEN: TOKEN,
      GAS_BUDGET_5042002: AMPLE_GAS,
      WORKERS: "2",
    },
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
const killOf = async (service: Service, title: string, signal: NodeJS.Signals): Promise<void> => {
  await until(() => childOf(service, title) !== undefined, START_MS);
  process.kill(childOf(service, title) ?? 0, signal);
};

// A connection for each request, so that both workers have their share.
const dispatcher = new Agent({ pipelining: 0, headersTimeout: START_MS / 2 });
t.teardown(() => dispatcher.destroy());
interface Heard {
  status: number;
  body: string;
}
async function ask(url: string, options: object = {}): Promise<Heard> {
  const { statusCode, body } = await request(url, { dispatcher, ...options });
  return { status: statusCode, body: await body.text() };
}

let payments = 0;
const paidBefore = await usdcOf(ctx, PAYEE);
/** As any client does: what was not answered is asked again with the same key, until it is paid. */
async function pay(url: string, troubles: string[]): Promise<void> {
  const number = (payments += 1);
  const options = {
    method: "POST",
    headers: { ...agents[number % AT_ONCE]?.headers, "idempotency-key": `payment-${number}` },
    body: JSON.stringify({ recipient: PAYEE, amount: "0.01" }),
  };
  const untilMs = performance.now() + START_MS;
  for (;;) {
    const heard = await ask(`${url}/api/agents/spend`, options).catch((error: Error) => ({
      status: 0,
      body: error.message,
    }));
    if (heard.status === 200) return;
    troubles.push(`${heard.status} ${heard.body.slice(0, 150)}`);
    if (performance.now() > untilMs)
      throw new Error(`payment ${number} is not made: ${heard.status} ${heard.body}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Payments one after the other, so many at a time, until `during` is over. */
async function underLoad(url: string, during: () => Promise<void>): Promise<string[]> {
  const troubles: string[] = [];
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

t.test("two workers and one that has the lanes", async (t) => {
  const service = await serve();
  const { url } = service;
  const metrics = async (): Promise<string> => {
    const headers = { authorization: `Bearer ${TOKEN}` };
    return (await ask(`${url}/metrics`, { headers })).body;
  };
  const seen = async (metric: string): Promise<number> => {
    const line = (await metrics()).split("\n").find((each) => each.startsWith(metric));
    return Number(line?.split(" ").at(-1));
  };
  const isWhole = async (): Promise<boolean> =>
    childrenOf(service.command.pid ?? 0).length === 3 &&
    (await ask(`${url}/api/ready`).catch(() => ({ status: 0 }))).status === 200;
  const newOne = async (title: string, old: number | undefined): Promise<void> => {
    await until(() => ![undefined, old].includes(childOf(service, title)), START_MS);
    await until(isWhole, START_MS);
  };

  await t.test("ready, in the words of each, and measured as one", async (t) => {
    const { status, body } = await ask(`${url}/api/ready`);
    t.equal(status, 200, body);
    t.match(JSON.parse(body), { parts: { lanes: { ok: true } } });
    for (let count = 0; count < 10; count += 1) await ask(`${url}/api/health`);
    const health = 'purser_http_request_seconds_count{method="GET",route="/api/health"';
    // Whoever is asked tells what both have answered.
    t.same([await seen(health), await seen(health), await seen(health)], [10, 10, 10]);
    t.equal(await seen("purser_build_info"), 1);
    t.equal(await seen("purser_lane_held"), 1, "told by the one that has the lanes");
    t.equal(await seen('purser_database_pool_size{pool="money"}'), 20);
  });

  await t.test("a stock MCP client, whichever worker its requests land on", async (t) => {
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
    t.same(answeredBy, new Set(["1", "2"]), "the log says which worker");
  });

  await t.test(
    "killed under load: a worker, the lanes, and a worker that is told to go",
    async (t) => {
      const troubles = await underLoad(url, async () => {
        const worker = childOf(service, "purser worker 1");
        await killOf(service, "purser worker 1", "SIGKILL");
        await newOne("purser worker 1", worker);
        const lanes = childOf(service, "purser lanes");
        await killOf(service, "purser lanes", "SIGKILL");
        await newOne("purser lanes", lanes);
      });
      t.comment(`heard of two kills: ${JSON.stringify(troubles)}`);
      t.ok(troubles.length <= AT_ONCE * 4, "only what was under way in the killed worker");
      const counted = await seen(
        'purser_http_request_seconds_count{method="GET",route="/api/health"',
      );
      t.equal(counted, 10, "what a killed process had counted is not forgotten");
      t.equal(await seen('purser_worker_restarts_total{worker="lanes"}'), 1);
      const other = childOf(service, "purser worker 2");
      const heard = await underLoad(url, async () => {
        await killOf(service, "purser worker 2", "SIGTERM");
        await newOne("purser worker 2", other);
      });
      t.same(heard, [], "nobody hears of a worker that is replaced");
    },
  );

  await t.test(
    "SIGTERM under load: ready says no first, and every request is answered",
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
          const heard = await ask(`${url}/api/agents/spend`, options).catch((error: Error) => {
            failed.push(error.message);
            return { status: 0, body: "" };
          });
          answers.push(heard.status);
        }
      });
      await until(() => answers.length > AT_ONCE, START_MS);
      service.command.kill("SIGTERM");
      // As a balancer does: it looks, and sends nobody new.
      await until(async () => (await ask(`${url}/api/ready`)).status === 503, 4_000);
      leaving.abort();
      await Promise.all(loads);
      t.same(failed, []);
      t.ok(
        answers.every((status) => status === 200),
        `${answers.length} answers`,
      );
      t.same(await service.ended, [0, null], "ends by itself");
      await t.rejects(ask(`${url}/api/health`), "nobody listens any more");
    },
  );

  t.equal((await usdcOf(ctx, PAYEE)) - paidBefore, BigInt(payments) * 10_000n, "each paid once");
});

t.test("who started them is killed: nobody is left", async (t) => {
  const service = await serve();
  const children = childrenOf(service.command.pid ?? 0);
  t.equal(children.length, 3);
  service.command.kill("SIGKILL");
  await service.ended;
  await until(() => children.every((pid) => titleOf(pid) === ""), 5_000);
  t.pass("all have ended");
});

t.test("what dies again and again ends the whole with a sentence", async (t) => {
  const service = await serve();
  const old = new Set<number>();
  const killing = setInterval(() => {
    // Also those that have not said yet what they are: whoever is new.
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
  t.equal(old.size, 6);
  t.match(service.output(), /Purser stops: Worker 1 ended 6 times in a row/);
  t.ok(
    [...known].every((pid) => titleOf(pid) === ""),
    "the others have ended, too",
  );
});

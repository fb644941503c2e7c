// Goal: behind the proxy of ops/replicas three replicas act as one service: while one is stopped and another
// killed, each payment is made exactly once, clients notice nothing of a stop, events are not buffered, and
// when no replica is ready the live ones still respond.
// Tier: full (starts whole deployments).
import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Agent, request } from "undici";
import t from "tap";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { freePort } from "../../server/local/free-port.ts";
import { testApp, testEnvironment, AMPLE_GAS, type TestApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { usdcOf } from "../spending/ledger.helper.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const has = (command: string, ...args: string[]): boolean =>
  spawnSync(command, args, { encoding: "utf8" }).status === 0;
const isHere = has("haproxy", "-v") && has("openssl", "version");
const skip = isHere ? false : "haproxy or openssl is not installed";

const PAYEE = "0x00000000000000000000000000000000000c0ffe";
const PAYMENTS_BEFORE = 15;
const PAYMENTS_AFTER = 45;
const AT_ONCE = 6;

interface ProxyResponse {
  status: number;
  body: string;
}

t.test("three replicas behind the proxy", { skip }, async (t) => {
  await prepare((line) => t.comment(line), [ensureServerBuild]);
  const folder = mkdtempSync(join(tmpdir(), "purser-proxy-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  // For the owner's requests; the payments go through the proxy.
  const ctx = await testApp(t, { env: { GAS_BUDGET_5042002: AMPLE_GAS } });
  const owner = await signIn(ctx);
  const agents = await Promise.all(
    Array.from({ length: AT_ONCE }, () =>
      createAgent(ctx, owner, { dailyLimit: "1000", allowlist: [PAYEE] }),
    ),
  );
  for (const agent of agents) await ctx.chain.mint(agent.walletAddress, 100_000_000n);

  // It created the wallets and is closed, so that only the replicas use the relayer.
  await ctx.app.close();

  const front = await freePort();
  const url = `https://localhost:${front}`;
  const children: ChildProcess[] = [];
  t.teardown(() => {
    for (const child of children) child.kill("SIGKILL");
  });
  const ports: number[] = [];
  const replica = async (): Promise<ChildProcess> => {
    const port = await freePort();
    ports.push(port);
    const env = testEnvironment({ databaseUrl: ctx.database.url, chain: ctx.chain, port });
    const child = spawn(process.execPath, ["server/start.mjs", "--built"], {
      cwd: ROOT,
      env: {
        PATH: process.env["PATH"],
        ...env,
        MASTER_KEYS: masterKeysOf(ctx),
        PUBLIC_URL: url,
        TRUST_PROXY: "1",
        GAS_BUDGET_5042002: AMPLE_GAS,
      },
      stdio: "ignore",
    });
    children.push(child);
    return child;
  };
  for (let count = 0; count < 3; count += 1) await replica();

  execFileSync(
    "openssl",
    "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem".split(
      " ",
    ),
    { cwd: folder, stdio: "ignore" },
  );
  const certificate = ["cert.pem", "key.pem"].map((name) =>
    readFileSync(join(folder, name), "utf8"),
  );
  writeFileSync(join(folder, "certificate"), certificate.join(""));
  // The repository's file, with the paths and addresses of this test.
  const config = readFileSync(`${ROOT}ops/replicas/haproxy.cfg`, "utf8")
    .replace("maxconn 8000", "maxconn 200")
    .replace("bind :8443", `bind 127.0.0.1:${front}`)
    .replace("/run/secrets/certificate", join(folder, "certificate"))
    .replace("/tmp/haproxy.sock", join(folder, "haproxy.sock"))
    .replaceAll(
      /purser-(\d):3000/g,
      (_whole, number: string) => `127.0.0.1:${ports[Number(number) - 1]}`,
    );
  writeFileSync(join(folder, "haproxy.cfg"), config);
  const checked = spawnSync("haproxy", ["-c", "-f", "haproxy.cfg"], {
    cwd: folder,
    encoding: "utf8",
  });
  t.equal(checked.status, 0, `its own checker: ${checked.stderr}`);
  const proxy = spawn("haproxy", ["-db", "-f", "haproxy.cfg"], {
    cwd: folder,
    stdio: "ignore",
  });
  children.push(proxy);

  const dispatcher = new Agent({ connect: { rejectUnauthorized: false }, connections: 20 });
  t.teardown(() => dispatcher.destroy());
  const call = async (path: string, options: object = {}): Promise<ProxyResponse> => {
    const { statusCode, body } = await request(url + path, { dispatcher, ...options });
    return { status: statusCode, body: await body.text() };
  };
  const ready = async (): Promise<boolean> =>
    (await call("/api/ready").catch(() => ({ status: 0 }))).status === 200;
  await until(ready, 60_000);
  const isUp = (port: number): Promise<boolean> =>
    fetch(`http://127.0.0.1:${port}/api/ready`).then(
      ({ ok }) => ok,
      () => false,
    );
  for (const port of ports) await until(() => isUp(port), 60_000);
  t.equal((await call("/metrics")).status, 404, "metrics are not public");

  await t.test("events arrive as soon as they happen", async (t) => {
    const events = await request(`${url}/api/events`, {
      dispatcher,
      headers: { cookie: `__Host-${owner.cookie}` },
    });
    t.match(events.headers, { "content-type": /text\/event-stream/ });
    const [agent] = agents;
    let answer = "";
    events.body.on("data", (chunk: Buffer) => (answer += chunk.toString()));
    events.body.on("error", () => undefined);
    const paid = await call("/api/agents/spend", {
      method: "POST",
      headers: agent?.headers ?? {},
      body: JSON.stringify({ recipient: PAYEE, amount: "0.5" }),
    });
    t.equal(paid.status, 200, paid.body);
    await until(() => answer.includes("payment"), 2_000);
    events.body.destroy();
  });

  await t.test("one replica is stopped, one is killed, and everything is paid once", async (t) => {
    const before = await usdcOf(ctx, PAYEE);
    const troubles = { stopped: [] as string[], killed: [] as string[] };
    const open = { stopped: 0, killed: 0 };
    let phase: keyof typeof troubles = "stopped";
    let paid = 0;
    let next = 0;
    let last = Infinity;
    t.teardown(() => (last = 0));
    const pay = async (number: number): Promise<void> => {
      const agent = agents[number % AT_ONCE];
      const options = {
        method: "POST",
        headers: { ...agent?.headers, "idempotency-key": `payment-${number}` },
        body: JSON.stringify({ recipient: PAYEE, amount: "0.01" }),
      };
      for (;;) {
        const during = phase;
        open[during] += 1;
        const answer = await call("/api/agents/spend", options).catch((error: Error) => ({
          status: 0,
          body: error.message,
        }));
        open[during] -= 1;
        if (answer.status === 200 || number >= last) break;
        // As any client does: the same call with the same key.
        troubles[during].push(`${answer.status} ${answer.body.slice(0, 200)}`);
        await new Promise((resolve) => setTimeout(resolve, 300));
      }
      paid += 1;
    };
    const worker = async (): Promise<void> => {
      while (next < last) await pay(next++);
    };
    const all = Promise.all(Array.from({ length: AT_ONCE }, worker));
    await until(() => paid > PAYMENTS_BEFORE, 60_000);
    const [first, second] = children;
    first?.kill("SIGTERM");
    if (first) t.same(await once(first, "exit"), [0, null], "the replica exits by itself");
    phase = "killed";
    // The kill must break none of the requests that only the stop may break.
    await until(() => open.stopped === 0, 60_000);
    second?.kill("SIGKILL");
    last = next + PAYMENTS_AFTER;
    await all;
    t.same(troubles.stopped, [], "clients notice nothing of a replica that stops");
    t.comment(`answer of the kill: ${JSON.stringify(troubles.killed)}`);
    t.ok(troubles.killed.length <= AT_ONCE * 20, "only requests in progress are affected");
    t.equal((await usdcOf(ctx, PAYEE)) - before, BigInt(next) * 10_000n);
  });

  await t.test("when no replica is ready, the live ones still respond", async (t) => {
    // Makes the last replica unready: a migration is missing in the database.
    await ctx.database.pool.query(
      "UPDATE _prisma_migrations SET finished_at = NULL WHERE migration_name = (SELECT max(migration_name) FROM _prisma_migrations)",
    );
    const last = ports[2] ?? 0;
    await until(async () => !(await isUp(last)), 10_000);
    // Waits in real time, because the proxy checks each replica every two seconds and cannot be queried. On a
    // busy machine the test proves less.
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    const answer = await call("/api/ready");
    t.match(
      answer,
      { status: 503, body: /1 pending/ },
      "the service's own response, not the proxy's",
    );
    t.equal((await call("/api/health")).status, 200);
  });
});

/** The keys of the app that created the wallets; the replicas need the same ones. */
const masterKeysOf = ({ config }: Pick<TestApp, "config">): string =>
  config.masterKeys
    .flatMap(({ kid, key }) => (key ? [`${kid}:${Buffer.from(key).toString("base64")}`] : []))
    .join(",");

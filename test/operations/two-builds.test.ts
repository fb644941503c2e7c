// Goal: through an upgrade, a rollback and a second upgrade under load, with the previous and the current
// build serving at once, every payment is made exactly once, limits hold, and no payment is refused for more
// than a moment.
// Limit: 10 minutes. (Its six starts take long on a busy machine.)
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { Pool } from "pg";
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { freePort } from "../../server/local/free-port.ts";
import { loadConfig } from "../../server/config.ts";
import { AMPLE_GAS, testEnvironment, type TestApp } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { emptyDatabase } from "../helpers/postgres.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";
import { signedPayment } from "../facilitator/payments.ts";
import { usdcOf } from "../spending/ledger.helper.ts";
import { compileCommit, injector, isInHistory, PREVIOUS_COMMIT } from "./previous-build.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const AGENTS = 3;
/** The least number of payments of each kind in a phase, through each build that serves. */
const PAYMENTS = isFullTier ? 4 : 2;
const START_MS = 60_000;
const RETRY_MS = 100;
const MOST_STARTS = 3;
const AGENT_PAYEE = "0x00000000000000000000000000000000000c0ffe";
const SHOP = "0x0000000000000000000000000000000000005407";
const CAPPED_PAYEE = "0x0000000000000000000000000000000000ca99ed";
/** The capped agent's limit, as a number of payments of 0.01: fewer than the phases request. */
const CAPPED_PAYMENTS = isFullTier ? 20 : 10;

const skip = isInHistory(PREVIOUS_COMMIT)
  ? false
  : `the build before (${PREVIOUS_COMMIT}) is not in this clone's history`;

interface Service {
  name: "previous" | "this";
  process: ChildProcess;
  url: string;
}

interface HttpAnswer {
  status: number;
  text: string;
}

async function send(url: string, init: RequestInit): Promise<HttpAnswer> {
  try {
    const answer = await fetch(url, { ...init, signal: AbortSignal.timeout(START_MS) });
    return { status: answer.status, text: await answer.text() };
  } catch (error) {
    return { status: 0, text: String((error as Error).cause ?? error) };
  }
}

t.test("upgrade, rollback, upgrade", { skip }, async (t) => {
  await prepare((line) => t.comment(line), [ensureServerBuild]);
  const [folder, chain, databaseUrl] = await Promise.all([
    compileCommit(t, PREVIOUS_COMMIT),
    testChain(t, { blockTimeSeconds: 0.5 }),
    emptyDatabase(t),
  ]);
  const folders = { previous: folder, this: ROOT };
  // One public address, as behind a proxy; the owner's wallet signs for it.
  const env = {
    ...testEnvironment({ databaseUrl, chain, port: await freePort() }),
    GAS_BUDGET_5042002: AMPLE_GAS,
  };
  const config = loadConfig(env);
  const running: Service[] = [];
  t.teardown(() => {
    for (const service of running) service.process.kill("SIGKILL");
  });

  /** Again, as a supervisor does, where a busy machine made the database too slow for a start. */
  async function start(name: Service["name"]): Promise<Service> {
    for (let starts = 1; ; starts += 1) {
      const started = await startOnce(name);
      if (typeof started !== "string") return started;
      if (starts === MOST_STARTS || !started.includes("the database cannot be used: timeout"))
        throw new Error(`the ${name} build did not start: ${started}`);
    }
  }

  /** Returns what it wrote if it did not start. */
  async function startOnce(name: Service["name"]): Promise<Service | string> {
    const port = await freePort();
    const child = spawn(process.execPath, ["server/start.mjs", "--built"], {
      cwd: folders[name],
      env: { PATH: process.env["PATH"], ...env, PORT: String(port) },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let output = "";
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => (output = (output + chunk.toString()).slice(-4_000)));
    const service = { name, process: child, url: `http://127.0.0.1:${port}` };
    running.push(service);
    await until(() => output.includes("Purser runs at") || child.exitCode !== null, START_MS);
    if (child.exitCode !== null) {
      running.splice(running.indexOf(service), 1);
      return output;
    }
    await until(async () => (await send(`${service.url}/api/ready`, {})).status === 200, START_MS);
    return service;
  }

  async function stop(service: Service): Promise<void> {
    running.splice(running.indexOf(service), 1);
    const ended = once(service.process, "exit");
    service.process.kill("SIGTERM");
    await ended;
  }

  let previous = await start("previous");
  const owned = { app: injector(previous.url), config } as unknown as TestApp;
  const owner = await signIn(owned);
  // One by one: they wait for one lock of their owner, on a busy machine longer than a request may.
  const agents: Awaited<ReturnType<typeof createAgent>>[] = [];
  for (let made = 0; made < AGENTS; made += 1)
    agents.push(await createAgent(owned, owner, { dailyLimit: "1000", allowlist: [AGENT_PAYEE] }));
  const capped = await createAgent(owned, owner, {
    dailyLimit: (CAPPED_PAYMENTS * 0.01).toFixed(2),
    allowlist: [CAPPED_PAYEE],
  });
  const shopper = privateKeyToAccount(generatePrivateKey());
  await chain.mint(
    [...agents.map((agent) => agent.walletAddress), capped.walletAddress],
    100_000_000n,
  );
  await chain.mint(shopper.address, 100_000_000n);

  let spends = 0;
  let settles = 0;
  let cappedPaid = 0;

  /**
   * As a client does: the same request with the same key until its outcome is known. A 500 fails the test.
   */
  async function callUntilAnswered(
    service: Service,
    request: { path: string; headers: Record<string, string>; body: unknown },
  ): Promise<HttpAnswer> {
    const key = `payment-${generatePrivateKey()}`;
    const untilMs = performance.now() + START_MS;
    for (;;) {
      const answer = await send(service.url + request.path, {
        method: "POST",
        headers: { "content-type": "application/json", ...request.headers, "idempotency-key": key },
        body: JSON.stringify(request.body),
      });
      const isOpen = /"(settlement_pending|unexpected_settle_error)"/.test(answer.text);
      if (![0, 503, 504, 409].includes(answer.status) && !isOpen) return answer;
      if (performance.now() > untilMs)
        throw new Error(
          `no outcome from the ${service.name} build: ${answer.status} ${answer.text}`,
        );
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  async function spend(service: Service, number: number): Promise<void> {
    const agent = agents[number % AGENTS];
    const answer = await callUntilAnswered(service, {
      path: "/api/agents/spend",
      headers: agent?.headers ?? {},
      body: { recipient: AGENT_PAYEE, amount: "0.01" },
    });
    if (answer.status !== 200) throw new Error(`spend at ${service.name}: ${answer.text}`);
    spends += 1;
  }

  async function settle(service: Service): Promise<void> {
    const body = await signedPayment({ chain, payer: shopper, payTo: SHOP, amount: "1000" });
    const answer = await callUntilAnswered(service, {
      path: "/api/x402/settle",
      headers: {},
      body,
    });
    if (!answer.text.includes('"success":true'))
      throw new Error(`settle at ${service.name}: ${answer.status} ${answer.text}`);
    settles += 1;
  }

  /** May be refused by the limit only. */
  async function spendCapped(service: Service): Promise<void> {
    const answer = await callUntilAnswered(service, {
      path: "/api/agents/spend",
      headers: capped.headers,
      body: { recipient: CAPPED_PAYEE, amount: "0.01" },
    });
    if (answer.status === 200) cappedPaid += 1;
    else if (!answer.text.includes("daily_limit_exceeded"))
      throw new Error(`capped spend at ${service.name}: ${answer.status} ${answer.text}`);
  }

  async function load(
    services: readonly Service[],
    during?: () => Promise<unknown>,
  ): Promise<void> {
    const over = new AbortController();
    const loads = services.flatMap((service) =>
      [
        (number: number) => spend(service, number),
        () => settle(service),
        () => spendCapped(service),
      ].map(async (make) => {
        for (let number = 0; number < PAYMENTS || !over.signal.aborted; number += 1)
          await make(number);
      }),
    );
    const changing = Promise.resolve(during?.()).finally(() => over.abort());
    await Promise.all([changing, ...loads]);
  }

  let current = previous;
  await t.test("the current build starts beside the previous one, under load", async () => {
    if (isFullTier) await load([previous]);
    await load([previous], async () => (current = await start("this")));
    await load([previous, current]);
  });
  await t.test("the previous build restarts beside the current one, under load", async () => {
    await stop(previous);
    await load([current], async () => (previous = await start("previous")));
    await load([previous, current]);
    await until(async () => (await send(`${current.url}/api/ready`, {})).status === 200, START_MS);
  });
  await t.test("rolled back: only the previous build", async () => {
    await load([previous], () => stop(current));
    if (!isFullTier) return;
    await stop(previous);
    previous = await start("previous");
    await load([previous]);
  });
  await t.test("upgraded again, and only the current build", async () => {
    await load([previous], async () => (current = await start("this")));
    if (isFullTier) await load([previous, current]);
    await load([current], () => stop(previous));
    if (isFullTier) await load([current]);
  });

  const pool = new Pool({ connectionString: databaseUrl });
  pool.on("error", () => undefined); // The database is dropped before the pool ends.
  t.teardown(() => pool.end());
  await until(async () => {
    const { rows } = await pool.query<{ open: boolean }>(
      "SELECT EXISTS (SELECT FROM settlements WHERE status IN ('queued', 'submitted')) AS open",
    );
    return rows[0]?.open === false;
  }, START_MS);
  t.equal(cappedPaid, CAPPED_PAYMENTS, "the limit was reached exactly, over both builds");
  t.equal(await usdcOf({ chain }, CAPPED_PAYEE), BigInt(CAPPED_PAYMENTS) * 10_000n);
  t.equal(await usdcOf({ chain }, AGENT_PAYEE), BigInt(spends) * 10_000n, "each spend once");
  t.equal(await usdcOf({ chain }, SHOP), BigInt(settles) * 1_000n, "each settlement once");
  await expectLedgerEqualsChain(t, chain, pool, { isAllFinal: true });
  t.match(JSON.parse((await send(`${current.url}/api/ready`, {})).text), {
    parts: { functions: { ok: true } },
  });
});

// Goal: two cells behind the proxy of ops/cells are one service for agents and third parties; while one of them is
// killed the other one serves, and nothing is lost or paid twice.
// Tier: full (starts whole deployments).
import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import t, { type Test } from "tap";
import { Agent, request } from "undici";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { cellOfPayer, readCells } from "../../server/core/cells.ts";
import { API_KEY_PREFIX, createSecret } from "../../server/plugins/auth/secrets.ts";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { freePort } from "../../server/local/free-port.ts";
import { signedPayment, type Body } from "../facilitator/payments.ts";
import { AMPLE_GAS, testApp, testEnvironment, type TestApp } from "../helpers/app.ts";
import { testChain, withOwnAccounts, type TestChain } from "../helpers/chain.ts";
import { createAgent, signIn, type NewTestAgent } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const has = (command: string, ...args: string[]): boolean =>
  spawnSync(command, args, { encoding: "utf8" }).status === 0;
const isHere = has("haproxy", "-v") && has("openssl", "version");
const skip = isHere ? false : "haproxy or openssl is not installed";

const SECRET = "two-cells-of-one-service-and-a-test";
const PAYEE = privateKeyToAccount(generatePrivateKey()).address;
const IDS = ["c1", "c2"] as const;
const ROUNDS = 40;
/** Neither cell has it, so the cell that refuses it shows where the proxy sent it. */
const MOVED_KEY = createSecret(API_KEY_PREFIX, "c1");

interface CellWorld {
  id: (typeof IDS)[number];
  port: number;
  agent: NewTestAgent;
  start(): ChildProcess;
}

interface Answer {
  status: number;
  body: Record<string, unknown>;
}

/** A cell with an owner and an agent that may pay. */
async function makeCell(
  t: Test,
  id: CellWorld["id"],
  { chain, ports }: { chain: TestChain; ports: Record<string, number> },
): Promise<CellWorld> {
  const port = ports[id] ?? 0;
  const cells = IDS.map((each) => `${each}=http://127.0.0.1:${ports[each]}`).join(",");
  const list = readCells(cells);
  const settings = { CELL: id, CELLS: cells, CELL_SECRET: SECRET, GAS_BUDGET_5042002: AMPLE_GAS };
  // The other cell does not run yet, so this one is alone while its owner's account is made.
  const alone = (config: TestApp["config"]): void => {
    config.cells = { self: id, cells: list.filter((cell) => cell.id === id), secret: SECRET };
  };
  const ctx = await testApp(t, { chain, configure: alone, env: settings });
  const owner = await signIn(ctx);
  const agent = await createAgent(ctx, owner, { dailyLimit: "1000", allowlist: [PAYEE] });
  await chain.mint(agent.walletAddress, 100_000_000n);
  const masterKeys = ctx.config.masterKeys.flatMap(({ kid, key }) =>
    key ? [`${kid}:${Buffer.from(key).toString("base64")}`] : [],
  );
  await ctx.app.close();
  const env = {
    ...testEnvironment({ databaseUrl: ctx.database.url, chain, port }),
    ...settings,
    MASTER_KEYS: masterKeys.join(","),
    TRUST_PROXY: "1",
  };
  const start = (): ChildProcess =>
    spawn(process.execPath, ["server/start.mjs", "--built"], {
      cwd: ROOT,
      env: { PATH: process.env["PATH"], ...env },
      stdio: "ignore",
    });
  return { id, port, agent, start };
}

/** The repository's file, with the addresses of this test. */
function writeProxy(folder: string, front: number, ports: Record<string, number>): void {
  execFileSync(
    "openssl",
    "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key.pem -out cert.pem".split(
      " ",
    ),
    { cwd: folder, stdio: "ignore" },
  );
  const parts = ["cert.pem", "key.pem"].map((name) => readFileSync(join(folder, name), "utf8"));
  writeFileSync(join(folder, "certificate"), parts.join(""));
  const config = readFileSync(`${ROOT}ops/cells/haproxy.cfg`, "utf8")
    .replace("maxconn 8000", "maxconn 200")
    .replace("bind :8443", `bind 127.0.0.1:${front}`)
    .replace("/run/secrets/certificate", join(folder, "certificate"))
    .replace("/usr/local/etc/haproxy/moved.map", join(folder, "moved.map"))
    .replaceAll(/purser-(c\d):3000/g, (_whole, id: string) => `127.0.0.1:${ports[id]}`);
  writeFileSync(join(folder, "haproxy.cfg"), config);
  const map = readFileSync(`${ROOT}ops/cells/moved.map`, "utf8");
  writeFileSync(join(folder, "moved.map"), `${map}${MOVED_KEY.slice(0, -30)} c2\n`);
}

t.test("two cells behind the proxy", { skip }, async (t) => {
  await prepare((line) => t.comment(line), [ensureServerBuild]);
  const folder = mkdtempSync(join(tmpdir(), "purser-cells-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const chain = await testChain(t, { chainId: 5_042_002 });
  const ports = { c1: await freePort(), c2: await freePort() };
  const one = await makeCell(t, "c1", { chain, ports });
  const two = await makeCell(t, "c2", { chain: await withOwnAccounts(chain), ports });

  const running = new Set<ChildProcess>();
  const run = (child: ChildProcess): ChildProcess => {
    running.add(child);
    return child;
  };
  t.teardown(() => {
    for (const child of running) child.kill("SIGKILL");
  });
  run(one.start());
  let second = run(two.start());
  const front = await freePort();
  writeProxy(folder, front, ports);
  const checked = spawnSync("haproxy", ["-c", "-f", "haproxy.cfg"], {
    cwd: folder,
    encoding: "utf8",
  });
  t.equal(checked.status, 0, `its own checker: ${checked.stderr}`);
  run(spawn("haproxy", ["-db", "-f", "haproxy.cfg"], { cwd: folder, stdio: "ignore" }));

  const dispatcher = new Agent({ connect: { rejectUnauthorized: false }, connections: 40 });
  t.teardown(() => dispatcher.destroy());
  const call = async (path: string, options: object = {}): Promise<Answer> => {
    const url = `https://localhost:${front}${path}`;
    const { statusCode, body } = await request(url, { dispatcher, ...options });
    const text = await body.text();
    return { status: statusCode, body: text.startsWith("{") ? JSON.parse(text) : { text } };
  };
  const isUp = (port: number): Promise<boolean> =>
    fetch(`http://127.0.0.1:${port}/api/ready`).then(
      ({ ok }) => ok,
      () => false,
    );
  for (const { port } of [one, two]) await until(() => isUp(port), 180_000);
  const me = ({ agent }: CellWorld): Promise<Answer> =>
    call("/api/agents/me", { headers: agent.headers }).catch(() => ({ status: 0, body: {} }));
  for (const cell of [one, two]) await until(async () => (await me(cell)).status === 200, 60_000);

  await t.test("a key in the list of moved ones goes to its new cell", async (t) => {
    const ask = (key: string): Promise<Answer> =>
      call("/api/agents/me", { headers: { authorization: `Bearer ${key}` } });
    t.match(
      (await ask(MOVED_KEY)).body,
      { code: "wrong_cell", cell: "c1" },
      "the second refuses it",
    );
    const other = createSecret(API_KEY_PREFIX, "c1");
    t.match((await ask(other)).body, { code: "invalid_api_key" }, "the first has no such key");
  });

  await t.test("what is between cells is not reached through the proxy", async (t) => {
    for (const path of ["/api/cells/settle", "/api/cells/owner"]) {
      const sent = { method: "POST", headers: { "content-type": "application/json" }, body: "{}" };
      t.equal((await call(path, sent)).status, 404, path);
    }
    t.equal((await call("/metrics")).status, 404);
  });

  await t.test(
    "one cell is killed under load: the other serves, and nothing is lost",
    async (t) => {
      const list = readCells(IDS.map((id) => `${id}=http://127.0.0.1:${ports[id]}`).join(","));
      const payerOf = async (id: string): Promise<PrivateKeyAccount> => {
        for (;;) {
          const payer = privateKeyToAccount(generatePrivateKey());
          if (cellOfPayer(list, payer.address, 1n)?.id !== id) continue;
          await chain.mint(payer.address, 100_000_000n);
          return payer;
        }
      };
      const payers = { c1: await payerOf("c1"), c2: await payerOf("c2") };
      const tries = { c1: 0, c2: 0 };
      /** Why the last one was repeated. */
      const last = { c1: "", c2: "" };
      let isDown = false;
      /** Payments of the first cell's payers and agent while the second is down. */
      let servedMeanwhile = 0;

      /** Until it is paid, as any client does: the same request with the same key. */
      const insist = async (
        id: CellWorld["id"],
        send: () => Promise<string | undefined>,
      ): Promise<void> => {
        for (;;) {
          const why = await send().catch((error: Error) => error.message);
          if (why === undefined) break;
          tries[id] += 1;
          last[id] = why;
          await sleep(300);
        }
        if (isDown && id === "c1") servedMeanwhile += 1;
      };
      const settle = async (id: CellWorld["id"], number: number): Promise<void> => {
        const body: Body = await signedPayment({ chain, payer: payers[id], payTo: PAYEE });
        const headers = {
          "content-type": "application/json",
          "idempotency-key": `settle-${id}-${number}`,
        };
        await insist(id, async () => {
          const options = { method: "POST", headers, body: JSON.stringify(body) };
          const answer = await call("/api/x402/settle", options);
          return answer.body["success"] === true ? undefined : JSON.stringify(answer);
        });
      };
      const spend = async ({ id, agent }: CellWorld, number: number): Promise<void> => {
        const headers = { ...agent.headers, "idempotency-key": `spend-${number}` };
        const body = JSON.stringify({ recipient: PAYEE, amount: "0.001" });
        await insist(id, async () => {
          const answer = await call("/api/agents/spend", { method: "POST", headers, body });
          return answer.status === 200 ? undefined : JSON.stringify(answer);
        });
      };
      const each = async (work: (number: number) => Promise<void>): Promise<void> => {
        for (let number = 0; number < ROUNDS; number += 1) await work(number);
      };
      const before = await chain.usdcOf(PAYEE);
      const all = Promise.all([
        each((number) => settle("c1", number)),
        each((number) => settle("c2", number)),
        each((number) => spend(one, number)),
        each((number) => spend(two, number)),
      ]);
      await until(async () => (await chain.usdcOf(PAYEE)) - before > 20_000n, 60_000);
      isDown = true;
      second.kill("SIGKILL");
      await once(second, "exit");
      await until(() => servedMeanwhile >= 20, 120_000).catch((error: unknown) => {
        t.comment(`served ${servedMeanwhile}, repeated: ${JSON.stringify({ tries, last })}`);
        throw error;
      });
      t.ok(tries.c2 > 0, "the second cell's payments wait for it");
      isDown = false;
      second = run(two.start());
      await all;
      t.comment(`repeated: ${JSON.stringify(tries)}`);
      t.equal((await chain.usdcOf(PAYEE)) - before, BigInt(4 * ROUNDS) * 1_000n);
    },
  );
});

// Goal: every example is a standalone program that runs against the real service, and the pages show exactly its
// code.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { toClientEvmSigner } from "@x402/evm";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/client";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import t from "tap";
import { freePort } from "../../server/local/free-port.ts";
import { testAccount } from "../helpers/chain.ts";
import { firstLine } from "../helpers/first-line.ts";
import { until } from "../helpers/until.ts";
import { agentWorld } from "./world.ts";

const world = await agentWorld(t);
const { agent, baseUrl, chain } = world;
const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const path = (name: string): string =>
  fileURLToPath(new URL(`../examples/${name}`, import.meta.url));
const agentEnvironment = { ...process.env, PURSER_URL: baseUrl, AGENT_API_KEY: agent.apiKey };
const run = promisify(execFile);

t.test("an agent in 20 lines", async (t) => {
  const { stdout } = await run(process.execPath, ["--import=tsx", path("agent.ts")], {
    env: agentEnvironment,
  });
  t.match(stdout, /I hold 100 USDC and can pay 10 now \(daily_limit\)/);
  t.match(stdout, /Paid 0\.001 USDC \(0x[0-9a-f]{64}\) for/);
});

t.test("the same from Python with plain HTTP", async (t) => {
  const python = await run("python3", ["--version"]).then(
    () => true,
    () => false,
  );
  if (!python) return t.comment("no python3 on this machine: the Python example was not run");
  const { stdout } = await run("python3", [path("agent.py")], { env: agentEnvironment });
  t.match(stdout, /^paid 0\.001 USDC: \d+/);
});

t.test("a paid Express API with this facilitator, and a stock client that pays it", async (t) => {
  const port = await freePort();
  const api = spawn(process.execPath, ["--import=tsx", path("paid-express.ts")], {
    env: { ...process.env, PORT: String(port), FACILITATOR_URL: `${baseUrl}/api/x402` },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(api, "exit");
  t.teardown(async () => {
    api.kill();
    await ended;
  });
  const url = `http://localhost:${port}/weather`;
  t.equal(await firstLine(api.stdout), `Listening at ${url}`);
  await until(
    () =>
      fetch(url).then(
        ({ status }) => status === 402,
        () => false,
      ),
    30_000,
  );
  const payer = testAccount(5);
  await chain.mint(payer.address, 1_000_000n);
  const { stdout } = await run(process.execPath, ["--import=tsx", path("pay-on-arc.ts"), url], {
    env: { ...process.env, PRIVATE_KEY: payer.privateKey },
  });
  t.match(stdout, /^200 \{"sky":"clear"\}/);
});

t.test("a paid API with payment channels claims and settles when it stops", async (t) => {
  const [port, receiver] = [await freePort(), testAccount(6).address];
  const api = spawn(
    process.execPath,
    [`--import=${import.meta.resolve("tsx")}`, path("paid-channels.ts")],
    {
      cwd: t.testdir(),
      env: {
        ...process.env,
        PORT: String(port),
        PAY_TO: receiver,
        AUTHORIZER_KEY: testAccount(7).privateKey,
        FACILITATOR_URL: `${baseUrl}/api/x402`,
      },
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  const ended = once(api, "exit");
  t.teardown(async () => {
    api.kill("SIGKILL");
    await ended;
  });
  const url = `http://localhost:${port}/words`;
  t.equal(await firstLine(api.stdout), `Listening at ${url}`);
  await until(
    () =>
      fetch(url).then(
        ({ status }) => status === 402,
        () => false,
      ),
    30_000,
  );
  const payer = testAccount(8);
  await chain.mint(payer.address, 1_000_000n);
  const asset = chain.usdc;
  const network = `eip155:${chain.chainId}` as const;
  const client = new x402Client()
    .register(network, new BatchSettlementEvmScheme(toClientEvmSigner(payer, chain.publicClient)))
    .setSpendControls({ allowedAssets: [{ network, asset, maxAmountPerPayment: "1000000" }] });
  const pay = wrapFetchWithPayment(fetch, client);
  for (const request of ["deposit", "voucher"])
    t.match(await (await pay(url)).json(), { words: "plain" }, request);
  t.equal(await chain.usdcOf(receiver), 0n);
  api.kill("SIGTERM");
  t.same(await ended, [0, null]);
  t.equal(await chain.usdcOf(receiver), 1_400n);
});

const SHOWN_ON = {
  "agent.ts": "docs/tutorials/first-agent.md",
  "paid-express.ts": "docs/tutorials/first-paid-api.md",
  "pay-on-arc.ts": "docs/how-to/sell-with-stock-middleware.md",
  "paid-channels.ts": "docs/how-to/sell-through-payment-channels.md",
  "paid-joke.ts": "docs/how-to/sell-with-our-paywall.md",
  "paid-through-channel.ts": "docs/how-to/charge-through-channels.md",
};

t.test("pages show the examples unchanged", async (t) => {
  for (const [name, page] of Object.entries(SHOWN_ON)) {
    const text = await readFile(`${ROOT}${page}`, "utf8");
    t.ok(text.includes(await readFile(path(name), "utf8")), `${page} contains ${name} literally`);
  }
});

t.test("the commands of the README's tour run", async (t) => {
  const readme = await readFile(`${ROOT}README.md`, "utf8");
  const tour = [...readme.matchAll(/```sh tour\n([\s\S]*?)```/g)].map((match) => match[1] ?? "");
  t.ok(tour.length >= 4, "the tour has its steps");
  for (const command of tour) {
    const script = command.replaceAll("http://localhost:3000", baseUrl);
    const { stdout } = await run("bash", ["-c", script], { env: agentEnvironment, cwd: ROOT });
    t.notMatch(JSON.parse(stdout), { success: false }, command);
  }
});

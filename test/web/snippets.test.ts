// Goal: every code example of the screens works unchanged.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import t, { type Test } from "tap";
import { freePort } from "../../server/local/free-port.ts";
import * as snippets from "../../web/src/lib/snippets.ts";
import type { ServiceInfo } from "../../web/src/lib/wire.ts";
import { testApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";

const SELLER = testAccount(80).address;
const ROOT = join(import.meta.dirname, "../..");

/** Does the same as `curl` with this line, which need not be installed. */
async function curl(command: string): Promise<Response> {
  const line = command.replaceAll("\\\n", " ").replaceAll("$(uuidgen)", crypto.randomUUID());
  const url = /https?:\/\/[^\s"']+/.exec(line)?.[0] ?? "";
  const headers = [...line.matchAll(/-H "([^:"]+): ([^"]*)"/g)].map(
    ([, name = "", value = ""]) => [name, value] as [string, string],
  );
  const body = /-d '([^']*)'/.exec(line)?.[1];
  return fetch(url, { method: body === undefined ? "GET" : "POST", headers, body });
}

/** Runs the code as a file inside the repository, where its imports are found. */
function run(t: Test, code: string, env: Record<string, string> = {}) {
  const folder = mkdtempSync(join(ROOT, "node_modules", ".snippet-"));
  const file = join(folder, "snippet.mjs");
  writeFileSync(file, code);
  const child = spawn(process.execPath, [file], { env: { ...process.env, ...env } });
  const output: string[] = [];
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding("utf8").on("data", (text: string) => void output.push(text));
  t.teardown(async () => {
    if (child.exitCode === null && child.kill()) await once(child, "exit");
    rmSync(folder, { recursive: true, force: true });
  });
  return { child, output };
}

t.test("snippets", async (t) => {
  const sellerPort = await freePort();
  const world = await testApp(t, {
    listen: true,
    chainOptions: { blockTimeSeconds: 0.5 },
    configure: (config) => {
      config.demoPayTo = SELLER;
      config.fetchPrivateOrigins = [config.publicUrl, `http://localhost:${sellerPort}`];
    },
  });
  const { baseUrl } = world;
  const info = (await (await fetch(`${baseUrl}/api/info`)).json()) as ServiceInfo;
  const [network] = info.networks;
  if (!network) throw new Error("no network");
  const demoUrl = `${baseUrl}${network.demoPath}`;
  const owner = await signIn(world);
  const reader = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8";
  const agent = await createAgent(world, owner, { allowlist: [SELLER, reader] });
  await world.chain.mint(agent.walletAddress, 5_000_000n);

  await t.test("a request without payment returns the protocol's 402", async (t) => {
    const answer = await curl(snippets.askWithoutPaying(demoUrl));
    t.equal(answer.status, 402);
    t.ok(answer.headers.get("payment-required"));
  });

  await t.test("each step for agents works with a real key", async (t) => {
    for (const { title, code } of snippets.agentSteps(baseUrl, agent.apiKey, demoUrl)) {
      const answer = await curl(code);
      t.equal(answer.status, 200, `${title}: ${await answer.text()}`);
    }
    for (const command of snippets.firstCurls(baseUrl, agent.apiKey, demoUrl).split("\n\n"))
      t.equal((await curl(command)).status, 200, command);
  });

  await t.test("the TypeScript call prints data and price", async (t) => {
    const { child, output } = run(t, snippets.typescriptCall(baseUrl, agent.apiKey, demoUrl));
    const [code] = (await once(child, "exit")) as [number];
    t.equal(code, 0, output.join(""));
    t.match(output.join(""), /paid 0\.001 USDC/);
  });

  await t.test("the MCP configuration connects and lists tools", async (t) => {
    const { mcpServers } = JSON.parse(snippets.mcpConfig(baseUrl, agent.apiKey)) as {
      mcpServers: { purser: { url: string; headers: Record<string, string> } };
    };
    const { url, headers } = mcpServers.purser;
    const client = new Client({ name: "snippet-test", version: "1.0.0" });
    await client.connect(
      new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }),
    );
    t.teardown(() => client.close());
    t.ok((await client.listTools()).tools.length > 0);
  });

  await t.test("the Express seller gets paid through our facilitator", async (t) => {
    const { output } = run(t, snippets.expressSeller(info, network), {
      PAY_TO: SELLER,
      PORT: String(sellerPort),
    });
    const url = `http://localhost:${sellerPort}/report`;
    await until(
      () =>
        fetch(url).then(
          ({ status }) => status === 402,
          () => false,
        ),
      20_000,
    ).catch((cause: unknown) => {
      throw new Error(output.join(""), { cause });
    });
    const answer = await curl(snippets.fetchPaid(baseUrl, agent.apiKey, { url }));
    t.match(await answer.json(), { paid: true, amountPaid: "0.001", data: { report: "..." } });
  });
});

// Goal: the packed packages work outside this repository: under plain Node, in both module systems, with
// types, for real money.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { decodePaymentResponseHeader } from "@x402/core/http";
import type { PaymentRequired } from "@x402/core/types";
import { wrapFetchWithPayment } from "@x402/fetch";
import t, { type Test } from "tap";
import { agentWorld } from "../agent-tools/world.ts";
import { freePort } from "../../server/local/free-port.ts";
import { testAccount } from "../helpers/chain.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";
import { stockClient } from "../paywall/stock.ts";
import {
  cleanEnvironment,
  emptyProject,
  PACKAGES,
  packedFiles,
  ROOT,
  run,
  versionHere,
} from "./packed.ts";

const world = await agentWorld(t);
const { agent, baseUrl, chain, demoUrl } = world;
const project = await emptyProject(t, [versionHere("fastify"), versionHere("@types/node")]);
const environment = cleanEnvironment({
  PURSER_URL: baseUrl,
  AGENT_API_KEY: agent.apiKey,
  XDG_CONFIG_HOME: join(project, "config"),
});

/** Writes a program into the project. */
function program(name: string, source: string): string {
  writeFileSync(join(project, name), source);
  return name;
}

/**
 * An agent's key, or a private key with content; code that parses such keys contains only their first line.
 */
const SECRET = /purser_[0-9A-Za-z]{32}|PRIVATE KEY-----\s*[0-9A-Za-z+/]{40}/;

/** Of a tarball. It had 2.2 MB once, of which most were source maps. */
const MOST_BYTES = { purser: 450_000, paywall: 450_000 };

t.test("the tarballs contain the build output, and nothing else", async (t) => {
  const OWN = {
    purser:
      /^(LICENSE|README\.md|package\.json|bin\/purser\.mjs|dist\/[\w-]+\.(js|cjs|d\.ts|d\.cts|js\.LEGAL\.txt|cjs\.LEGAL\.txt)|dist\/node10\/[\w-]+\.d\.ts)$/,
    paywall:
      /^(LICENSE|README\.md|package\.json|dist\/[\w-]+\.(js|cjs|d\.ts|d\.cts|js\.LEGAL\.txt|cjs\.LEGAL\.txt)|dist\/node10\/[\w-]+\.d\.ts|dist\/assets\/[\w-]+\.(js|css|svg|woff2|LICENSE))$/,
  };
  for (const name of PACKAGES) {
    const { files, size } = await packedFiles(name);
    t.ok(size < MOST_BYTES[name], `${name} has ${size} bytes`);
    t.same(
      files.filter((file) => !OWN[name].test(file)),
      [],
      name,
    );
    for (const needed of ["LICENSE", "README.md", "package.json"]) t.ok(files.includes(needed));
    for (const file of files) {
      const text = readFileSync(join(ROOT, "packages", name, file), "latin1");
      t.notOk(text.includes(ROOT), `${file} names no folder of the machine that built it`);
      t.notOk(SECRET.test(text), `${file} contains no key`);
      // The bundler names the source of each part.
      t.notMatch(
        text,
        /^\/\/ (\.\.\/)*(server|test|prisma|web)\//m,
        `${file}: no source of the server`,
      );
    }
    for (const file of files.filter((path) => /\.d\.c?ts$/.test(path))) {
      const types = readFileSync(join(ROOT, "packages", name, file), "utf8");
      t.notMatch(types, /typebox|\.ts"|schemas\//, `${file} has plain types`);
    }
  }
  const installed = readdirSync(join(project, "node_modules"));
  t.ok(installed.includes("@purser") && installed.includes("fastify"));
  for (const heavy of ["viem", "typebox", "pg", "@prisma", "@modelcontextprotocol", "undici"])
    t.notOk(installed.includes(heavy), `no ${heavy} comes along`);
});

const PAYING = `
  const purser = new Purser({ apiKey: process.env.AGENT_API_KEY, baseUrl: process.env.PURSER_URL });
  const me = await purser.me();
  const fetched = await purser.fetch({ url: process.argv[2], maxAmount: "0.01" });
  const refused = await purser.spend({ recipient: me.wallet, amount: "100000" }).catch((error) => error);
  console.log(JSON.stringify({ wallet: me.wallet, paid: fetched.amountPaid, refused: refused instanceof PurserError && refused.code }));
`;

t.test("the client pays, imported and required", async (t) => {
  const programs = [
    program("pay.mjs", `import { Purser, PurserError } from "purser";\n${PAYING}`),
    program(
      "pay.cjs",
      `const { Purser, PurserError } = require("purser");\nvoid (async () => {${PAYING}})();`,
    ),
  ];
  for (const file of programs) {
    const { stdout } = await run(process.execPath, [file, demoUrl], {
      cwd: project,
      env: environment,
    });
    t.match(
      JSON.parse(stdout),
      { wallet: agent.walletAddress, paid: "0.001", refused: String },
      file,
    );
  }
});

const SELLING = `
  const app = Fastify();
  await app.register(paywall, {
    facilitator: process.env.FACILITATOR_URL,
    networks: ["eip155:5042002"],
    payTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
  });
  app.get("/joke", { config: { paywall: { price: "0.01" } } }, async (request) => ({ paidBy: request.payment.payer }));
  await app.listen({ port: Number(process.env.PORT) });
`;

async function sold(t: Test, file: string): Promise<void> {
  const port = await freePort();
  const env = { ...environment, PORT: String(port), FACILITATOR_URL: `${baseUrl}/api/x402` };
  const stdio = ["ignore", "inherit", "inherit"] as const;
  const shop = spawn(process.execPath, [file], { cwd: project, env, stdio: [...stdio] });
  const ended = once(shop, "exit");
  try {
    const origin = `http://localhost:${port}`;
    const status = () =>
      fetch(`${origin}/joke`).then(
        (answer) => answer.status,
        () => 0,
      );
    await until(async () => (await status()) === 402, 20_000);
    const payer = testAccount(file.length);
    await chain.mint(payer.address, 1_000_000n);
    const paid = await wrapFetchWithPayment(fetch, stockClient(chain, payer))(`${origin}/joke`);
    t.match([paid.status, await paid.json()], [200, { paidBy: payer.address }], file);
    const receipt = decodePaymentResponseHeader(paid.headers.get("payment-response") ?? "");
    const hash = receipt.transaction as `0x${string}`;
    t.equal((await chain.publicClient.getTransactionReceipt({ hash })).status, "success");
    const page = await fetch(`${origin}/joke`, { headers: { accept: "text/html" } });
    t.match(await page.text(), /0\.01/);
    for (const asset of ["pay.js", "look.css", "geist.woff2", "geist-mono.woff2"])
      t.equal((await fetch(`${origin}/paywall/${asset}`)).status, 200, asset);
  } finally {
    shop.kill();
    await ended;
  }
}

t.test("the paywall sells, imported and required", async (t) => {
  await sold(
    t,
    program(
      "sell.mjs",
      `import Fastify from "fastify";\nimport { paywall } from "@purser/paywall";\n${SELLING}`,
    ),
  );
  await sold(
    t,
    program(
      "selling.cjs",
      `const Fastify = require("fastify");\nconst { paywall } = require("@purser/paywall");\nvoid (async () => {${SELLING}})();`,
    ),
  );
});

const TOOL = `
  const charges = cashier({ facilitator: process.env.FACILITATOR_URL, networks: ["eip155:5042002"], payTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8" });
  const joke = { name: "joke", price: "0.01" };
  const tool = paidTool(charges, joke, (receipt, args) => ({ content: [], said: args.topic, paidBy: receipt.payer }));
  const announced = (await priceTag(charges, joke))["x402/payment-required"].accepts.length;
  const _meta = process.env.PROOF && { "x402/payment": JSON.parse(process.env.PROOF) };
  console.log(JSON.stringify({ announced, ...(await tool({ topic: "402" }, { _meta })) }));
`;

t.test("a tool is sold without Fastify and without an MCP SDK", async (t) => {
  const named = "cashier, paidTool, priceTag";
  const loaded = `if (Object.keys(require.cache).some((file) => /fastify/.test(file))) throw new Error("Fastify is loaded");`;
  const programs = [
    program("tool.mjs", `import { ${named} } from "@purser/paywall/mcp";\n${TOOL}`),
    program(
      "tool.cjs",
      `const { ${named} } = require("@purser/paywall/mcp");\n${loaded}\nvoid (async () => {${TOOL}})();`,
    ),
  ];
  const payer = testAccount(6);
  await chain.mint(payer.address, 1_000_000n);
  for (const file of programs) {
    const call = async (proof?: object) => {
      const env = { ...environment, FACILITATOR_URL: `${baseUrl}/api/x402` };
      const { stdout } = await run(process.execPath, [file], {
        cwd: project,
        env: proof ? { ...env, PROOF: JSON.stringify(proof) } : env,
      });
      return JSON.parse(stdout) as { structuredContent: PaymentRequired };
    };
    const unpaid = await call();
    t.match(unpaid, { announced: 1, isError: true });
    const proof = await stockClient(chain, payer).createPaymentPayload(unpaid.structuredContent);
    t.match(await call(proof), { said: "402", paidBy: payer.address });
    if (!isFullTier) continue;
    t.match(await call(proof), { isError: true }, "sold once");
  }
});

const TYPED = `
import { Purser, PurserError, ApprovalNeeded, type FetchResult, type AgentSelf, type Delivered } from "purser";
import { paywall, type PaywallOptions, type PaymentNetwork } from "@purser/paywall";
import { cashier, paidTool, type Receipt } from "@purser/paywall/mcp";
import Fastify from "fastify";

const purser = new Purser({ apiKey: "k", baseUrl: "http://localhost:3000" });
export async function buy(): Promise<string> {
  const me: AgentSelf = await purser.me();
  const left: string = me.limits.remaining;
  const { paid, txHash }: FetchResult = await purser.fetch({ url: "https://x.example", method: "POST", body: { a: 1 } });
  const hash: string | null = txHash;
  // @ts-expect-error The method does not exist.
  await purser.fetch({ url: "https://x.example", method: "BREW" });
  // @ts-expect-error A quote sends no body.
  await purser.quote({ url: "https://x.example", body: {} });
  // @ts-expect-error Money is a string.
  await purser.spend({ recipient: "0x", amount: 1 }).catch((error: unknown) => {
    if (error instanceof PurserError) {
      const delivered: Delivered | undefined = error.delivered;
      return delivered?.text ?? error.problem.policy?.remaining;
    }
    return error instanceof ApprovalNeeded ? error.approval.waitUrl : undefined;
  });
  return left + String(hash) + String(paid);
}
const options: PaywallOptions = { facilitator: "https://f.example", networks: ["eip155:8453"], payTo: "0x" };
export const app = Fastify();
void app.register(paywall, options);
app.get("/", { config: { paywall: { price: "0.01" } } }, async (request) => request.payment?.payer);
const charges = cashier({ facilitator: "https://f.example", networks: ["base"], payTo: "0x" });
export const tool: (args: { city: string }) => Promise<object> = paidTool(
  charges,
  { name: "weather", price: "0.01" },
  (receipt: Receipt, { city }: { city: string }) => ({ content: [], city, by: receipt.payer }),
);
// @ts-expect-error A price is a string.
app.get("/wrong", { config: { paywall: { price: 1 } } }, async () => "");
export const name = (network: PaymentNetwork): string => network.usdc.name;
`;

t.test("types compile, strictly, under every way of resolving modules", async (t) => {
  for (const name of ["typed.mts", "typed.cts", "typed.ts"]) program(name, TYPED);
  const tsc = join(ROOT, "node_modules", ".bin", "tsc");
  const strict = ["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--target", "es2023"];
  // The newest compiler does not know `node10` any more; older ones use it for CommonJS.
  const older = join(ROOT, "test/generators/node_modules/typescript/bin/tsc");
  for (const [compiler, file, resolution] of [
    [tsc, "typed.mts", ["--module", "nodenext"]],
    [tsc, "typed.cts", ["--module", "nodenext"]],
    [
      older,
      "typed.ts",
      ["--module", "commonjs", "--moduleResolution", "node10", "--esModuleInterop"],
    ],
    [tsc, "typed.mts", ["--module", "esnext", "--moduleResolution", "bundler"]],
  ].slice(0, isFullTier ? 4 : 3) as [string, string, string[]][]) {
    const compiled = await run(compiler, [...strict, "--types", "node", ...resolution, file], {
      cwd: project,
      env: environment,
    }).catch((error: { stdout: string; code: unknown }) => error);
    t.same(
      ["code" in compiled ? compiled.code : 0, compiled.stdout],
      [0, ""],
      `${file} ${resolution.join(" ")}`,
    );
  }
});

t.test("`npx purser` is the command line, and an MCP server over stdio", async (t) => {
  const npx = ["--no-install", "purser"];
  const { stdout } = await run("npx", [...npx, "me"], { cwd: project, env: environment });
  t.match(JSON.parse(stdout), { wallet: agent.walletAddress });

  const mcpClient = async (env: NodeJS.ProcessEnv) => {
    const client = new Client({ name: "test", version: "1" });
    const transport = new StdioClientTransport({
      command: "npx",
      args: [...npx, "mcp"],
      cwd: project,
      env: env as Record<string, string>,
      stderr: "ignore",
    });
    await client.connect(transport);
    t.teardown(() => client.close());
    return client;
  };
  const client = await mcpClient(environment);
  const names = (await client.listTools()).tools.map((tool) => tool.name);
  t.ok(names.includes("x402_fetch") && names.includes("send_usdc"), names.join(", "));
  const fetched = await client.callTool({
    name: "x402_fetch",
    arguments: { url: demoUrl, maxAmount: "0.01" },
  });
  t.match(JSON.stringify(fetched), /"?amountPaid\\?":\s*\\?"0\.001/);
  const before = await run("npx", [...npx, "payments"], { cwd: project, env: environment });
  t.match(JSON.parse(before.stdout), { items: [{ status: "settled", amount: "0.001" }] });

  const wrongKey = mcpClient({ ...environment, AGENT_API_KEY: "purser_wrong" });
  await t.rejects(wrongKey, { message: /refuses the key\. Set AGENT_API_KEY/ });
  const unreachable = mcpClient({
    ...environment,
    PURSER_URL: `http://127.0.0.1:${await freePort()}`,
  });
  await t.rejects(unreachable, { message: /No Purser service can be reached at http:\/\/127/ });
  t.notOk(existsSync(join(project, "config")), "no configuration was written");
});

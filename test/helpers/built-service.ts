// The compiled server, as it ships, in its own process: what a bundle breaks shows nowhere else.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Test } from "tap";
import { ensureServerBuild, prepare } from "../../server/local/bootstrap.mjs";
import { freePort } from "../../server/local/free-port.ts";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp, testEnvironment, type TestApp, type TestAppOptions } from "./app.ts";
import { createAgent, signIn } from "./owner.ts";
import { until } from "./until.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const START_MS = 60_000;

export interface BuiltService {
  /** What it wrote beside its log. */
  errors: () => string;
  /** Every log line so far. */
  logs: Record<string, unknown>[];
  call: (path: string, options?: RequestInit) => Promise<Answer>;
}

interface Answer {
  status: number;
  headers: Headers;
  body: Record<string, unknown>;
}

export type AgentWorld = Awaited<ReturnType<typeof agentWorld>>;

/** An agent that may pay, made by a service that has ended: the compiled one continues on its database. */
export async function agentWorld(t: Test, options: TestAppOptions = {}) {
  const ctx = await testApp(t, options);
  const owner = await signIn(ctx);
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await createAgent(ctx, owner, { allowlist: [payee] });
  await ctx.chain.mint(agent.walletAddress, 5_000_000n);
  await ctx.app.close();
  const { database, chain } = ctx;
  return { database, chain, owner, agent, payee };
}

export const ready = async ({ call }: BuiltService) =>
  (await call("/api/ready")) as unknown as {
    status: number;
    body: { parts: Record<string, { ok: boolean; detail: string }> };
  };

/** Compiles the server unless it is compiled already: every test of a run shares one build. */
export async function builtService(
  t: Test,
  { database, chain }: Pick<TestApp, "database" | "chain">,
  { node = process.execPath } = {},
): Promise<BuiltService> {
  await prepare((line) => t.comment(line), [ensureServerBuild]);
  const port = await freePort();
  const env = {
    PATH: process.env["PATH"] ?? "",
    ...testEnvironment({ databaseUrl: database.url, chain, port }),
  };
  const child = spawn(node, ["server/start.mjs", "--built"], {
    cwd: ROOT,
    env,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let errors = "";
  child.stderr.pipe(process.stderr, { end: false });
  child.stderr.on("data", (chunk: Buffer) => (errors += chunk.toString()));
  const ended = once(child, "exit");
  t.teardown(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const logs: Record<string, unknown>[] = [];
  createInterface({ input: child.stdout }).on("line", (line) => {
    if (line.startsWith("{")) logs.push(JSON.parse(line) as Record<string, unknown>);
  });
  const url = `http://localhost:${port}`;
  const call = async (path: string, options?: RequestInit): Promise<Answer> => {
    const response = await fetch(`${url}${path}`, options);
    const { status, headers } = response;
    return { status, headers, body: parsed(await response.text()) };
  };
  await until(async () => {
    if (child.exitCode !== null) throw new Error("the compiled server ended");
    const alive = await call("/api/health").catch(() => undefined);
    return alive?.status === 200;
  }, START_MS);
  return { logs, call, errors: () => errors };
}

function parsed(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return { text };
  }
}

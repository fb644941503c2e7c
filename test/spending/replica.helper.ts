// Starts replicas of the service on a test's database and chain.
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Test } from "tap";
import { freePort } from "../../server/local/free-port.ts";
import { testEnvironment, type TestApp } from "../helpers/app.ts";
import { childScript } from "../helpers/child-script.ts";

export interface Replica {
  url: string;
  child: ChildProcess;
  /** Resolves when the process has ended. */
  ended: Promise<unknown>;
}

const CLOCK = fileURLToPath(new URL("skewed-clock.mjs", import.meta.url));

export async function startReplica(
  t: Pick<Test, "teardown">,
  { database, chain }: Pick<TestApp, "database" | "chain">,
  env: Record<string, string> = {},
): Promise<Replica> {
  const port = await freePort();
  const child = fork(childScript("test/spending/replica.child.ts"), {
    execArgv: ["--enable-source-maps", `--import=${CLOCK}`],
    env: {
      PATH: process.env["PATH"] ?? "",
      ...testEnvironment({ databaseUrl: database.url, chain, port }),
      ...env,
    },
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const ended = once(child, "exit");
  t.teardown(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGTERM");
    await ended;
  });
  const [message] = (await Promise.race([once(child, "message"), ended])) as [unknown];
  if (message !== "ready")
    throw new Error(`the replica ended before it was ready: ${String(message)}`);
  return { url: `http://127.0.0.1:${port}`, child, ended };
}

export async function post(
  url: string,
  headers: Record<string, string>,
  body: unknown,
): Promise<{ status: number; body: Record<string, unknown>; headers: Headers }> {
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  return {
    status: answer.status,
    body: (await answer.json()) as Record<string, unknown>,
    headers: answer.headers,
  };
}

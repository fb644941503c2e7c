// Starts replicas of the service on a test's database and chain, and kills them in the middle of requests.
import { setTimeout as sleep } from "node:timers/promises";
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
      ...testEnvironment({ databaseUrl: database.url, chain, port, env }),
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

interface HeldRequest {
  /** The step at which it is held until its process is killed. */
  point: string;
  path: string;
  headers: Record<string, string>;
  body: unknown;
}

/**
 * Starts a replica, holds each request at its step, and kills the replica when all are held: one kill covers every
 * step. Requests are sent one after the other, each when the previous one is held, so that a held request does not
 * block the next.
 */
export async function killedMidway(
  t: Test,
  ctx: Pick<TestApp, "database" | "chain">,
  requests: readonly HeldRequest[],
  env: Record<string, string> = {},
): Promise<void> {
  const { url, child, ended } = await startReplica(t, ctx, env);
  const origin = url.replace("127.0.0.1", "localhost");
  const cut: Promise<unknown>[] = [];
  try {
    for (const { point, path, headers, body } of requests) {
      const held = once(child, "message");
      const request = post(`${url}${path}`, { ...headers, origin, "x-test-hold-at": point }, body);
      cut.push(request.then(JSON.stringify, () => "no answer"));
      const first: unknown = await Promise.race([held, request.catch(() => ended)]);
      if (!Array.isArray(first) || first[0] !== point)
        throw new Error(`not held when ${point}: ${JSON.stringify(first)}`);
    }
  } finally {
    child.kill("SIGKILL");
    await ended;
  }
  t.same(
    await Promise.all(cut),
    requests.map(() => "no answer"),
    "killed: no responses",
  );
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

/** Retries like a client: `agent_busy` means that nothing was reserved. */
export async function postWhenFree(...call: Parameters<typeof post>): ReturnType<typeof post> {
  for (;;) {
    const answer = await post(...call);
    if (answer.body["code"] !== "agent_busy") return answer;
    await sleep(200);
  }
}

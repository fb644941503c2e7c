// A server that dies at a named step of a fetch, and whoever asks again afterwards.
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Test } from "tap";
import { freePort } from "../../server/local/free-port.ts";
import { testEnvironment } from "../helpers/app.ts";
import { childScript } from "../helpers/child-script.ts";
import type { Answered, Market } from "./market.ts";

const CHILD = childScript("test/x402-client/doomed-server.child.ts");

export interface Doomed {
  /** The step at which the process is killed. */
  point: string;
  body: object;
  headers: Record<string, string>;
  env: Record<string, string>;
}

/** Sends one fetch to a server that dies at the point, and sees it die. */
export async function fetchAndDie(t: Test, made: Market, doomed: Doomed): Promise<void> {
  const { point, body, headers, env } = doomed;
  const port = await freePort();
  const child = spawn(process.execPath, ["--enable-source-maps", CHILD], {
    env: {
      ...process.env,
      ...testEnvironment({
        databaseUrl: made.database.url,
        chain: made.chain,
        port,
        env: {
          ...env,
          FETCH_PRIVATE_ORIGINS: made.config.fetchPrivateOrigins.join(","),
          DOOM_AT: point,
        },
      }),
    },
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  const ended = once(child, "exit");
  await Promise.race([once(child.stdout, "data"), ended]);
  await t.rejects(
    fetch(`http://127.0.0.1:${port}/api/agents/x402-fetch`, {
      method: "POST",
      headers: { ...made.agent.headers, ...headers },
      body: JSON.stringify(body),
    }),
    `killed at ${point}: no answer`,
  );
  t.same((await ended)[1], "SIGKILL");
}

/** Asks another replica the same until the first request counts as dead. */
export async function askAgain(
  made: Market,
  { body, headers }: Pick<Doomed, "body" | "headers">,
  limitMs: number,
): Promise<Answered> {
  const deadlineMs = Date.now() + limitMs;
  for (;;) {
    const answer = await made.fetch(body as Record<string, unknown>, headers);
    if (answer.body["code"] !== "idempotency_in_progress" || Date.now() > deadlineMs) return answer;
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
}

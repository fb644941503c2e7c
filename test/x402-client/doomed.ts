// Runs fetches whose server process is killed at a named step, so that a test can repeat them.
import type { Test } from "tap";
import { killedMidway } from "../spending/replica.helper.ts";
import type { Answered, Market } from "./market.ts";

export interface DoomedFetch {
  /** The step at which the process is killed. */
  point: string;
  body: Record<string, unknown>;
  headers: Record<string, string>;
}

/** Long enough that no request counts as dead while the test runs, until `untilDead` moves its time back. */
export const TIMEOUT_MS = 100_000;

export const keyed = (point: string, name: string, body: Record<string, unknown>): DoomedFetch => ({
  point,
  body: { timeoutMs: TIMEOUT_MS, ...body },
  headers: { "idempotency-key": name },
});

/** Sends the fetches to one server process, which is killed when each has reached its step. */
export const fetchAndDie = (
  t: Test,
  made: Market,
  doomed: readonly DoomedFetch[],
  env: Record<string, string>,
): Promise<void> =>
  killedMidway(
    t,
    made,
    doomed.map(({ point, body, headers }) => ({
      point,
      path: "/api/agents/x402-fetch",
      headers: { ...made.agent.headers, ...headers },
      body,
    })),
    { ...env, FETCH_PRIVATE_ORIGINS: made.config.fetchPrivateOrigins.join(",") },
  );

/** Moves the payments back in time so that their requests count as dead: twice the timeout, the wait for the chain, and a margin. */
export async function untilDead({ database, agent }: Market): Promise<void> {
  await database.pool.query(
    "UPDATE payments SET created_at = created_at - interval '150 seconds' WHERE agent_id = $1",
    [agent.id],
  );
}

/** A fetch that was completed is answered the same, again and again. */
export async function assertStored(
  t: Test,
  made: Market,
  { body, headers }: DoomedFetch,
): Promise<void> {
  const known = ({ status, body }: Answered) => [
    status,
    body["code"],
    body["txHash"],
    body["text"],
  ];
  const first = await made.fetch(body, headers);
  const second = await made.fetch(body, headers);
  t.same(known(second), known(first));
  t.equal(second.headers["idempotent-replayed"], "true", JSON.stringify(body));
}

// Fetches whose process dies at a named step, and whoever asks again afterwards.
import type { Test } from "tap";
import { killedMidway } from "../spending/replica.helper.ts";
import type { Market } from "./market.ts";

export interface DoomedFetch {
  /** The step at which the process is killed. */
  point: string;
  body: Record<string, unknown>;
  headers: Record<string, string>;
}

/** Long enough that nobody takes a request for dead while the test runs, unless the test says that time has passed. */
export const TIMEOUT_MS = 100_000;

/** Sends the fetches to one server, which dies when each has come to its step. */
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

/** Time passes until the requests count as dead: their timeout twice, the wait for the chain, and a little. */
export async function untilDead({ database, agent }: Market): Promise<void> {
  await database.pool.query(
    "UPDATE payments SET created_at = created_at - interval '150 seconds' WHERE agent_id = $1",
    [agent.id],
  );
}

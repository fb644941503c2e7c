// A bounded load: a number of requests in flight, for a time or until all bodies are sent.
import { Pool } from "undici";

/** Longer than the wait for a point between two blocks; servers close connections that are idle for 5 s. */
const KEEP_ALIVE_MS = 4_500;

interface LoadOptions {
  url: string;
  bodies: readonly string[];
  inFlight: number;
  /** Repeats the bodies until this time has passed; without it, each body is sent once. */
  durationMs?: number;
  /** Names the outcome of a response; outcomes are counted. */
  outcomeOf: (answer: Record<string, unknown>) => string;
  /** Opens the connections first, with a request for this path on each; then the load begins. */
  begin?: { path: string; when: () => Promise<void> };
  /** Called with each outcome and its time since the first request. */
  onAnswer?: (outcome: string, afterMs: number) => void;
}

interface LoadResult {
  perSecond: number;
  elapsedMs: number;
  p50Ms: number;
  p95Ms: number;
  count: number;
  outcomes: Record<string, number>;
}

export async function load(options: LoadOptions): Promise<LoadResult> {
  const url = new URL(options.url);
  const pool = new Pool(url.origin, {
    connections: options.inFlight,
    pipelining: 1,
    headersTimeout: 120_000,
    bodyTimeout: 120_000,
    keepAliveTimeout: KEEP_ALIVE_MS,
  });
  const { begin } = options;
  if (begin) {
    const connecting = Array.from({ length: options.inFlight }, async () => {
      const { body } = await pool.request({
        path: url.pathname.replace(/\/[^/]*$/, begin.path),
        method: "GET",
      });
      await body.dump();
    });
    await Promise.all(connecting);
    await begin.when();
  }
  const latenciesMs: number[] = [];
  const outcomes: Record<string, number> = {};
  const startMs = performance.now();
  const endMs = options.durationMs === undefined ? Infinity : startMs + options.durationMs;
  let next = 0;
  const worker = async (): Promise<void> => {
    while (performance.now() < endMs) {
      const index = next++;
      if (options.durationMs === undefined && index >= options.bodies.length) return;
      const sentMs = performance.now();
      const outcome = await post(
        pool,
        url.pathname,
        options,
        options.bodies[index % options.bodies.length] ?? "",
      );
      const answeredMs = performance.now();
      latenciesMs.push(answeredMs - sentMs);
      options.onAnswer?.(outcome, answeredMs - startMs);
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
    }
  };
  await Promise.all(Array.from({ length: options.inFlight }, worker));
  const elapsedMs = performance.now() - startMs;
  await pool.close();
  const sorted = latenciesMs.sort((left, right) => left - right);
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  return {
    perSecond: (sorted.length / elapsedMs) * 1000,
    elapsedMs,
    p50Ms: at(0.5),
    p95Ms: at(0.95),
    count: sorted.length,
    outcomes,
  };
}

export const verifyOutcome = (answer: Record<string, unknown>): string =>
  answer["isValid"] === true ? "valid" : String(answer["invalidReason"]);
export const settleOutcome = (answer: Record<string, unknown>): string =>
  answer["success"] === true ? "success" : String(answer["errorReason"] ?? answer["error"]);

/**
 * A missing response is an outcome too, so that requests which a server drops are reported beside the others.
 */
async function post(
  pool: Pool,
  path: string,
  { outcomeOf }: LoadOptions,
  sent: string,
): Promise<string> {
  try {
    const { statusCode, body } = await pool.request({
      path,
      method: "POST",
      headers: { "content-type": "application/json" },
      body: sent,
    });
    const text = await body.text();
    if (statusCode !== 200) return `http ${statusCode}`;
    return outcomeOf(JSON.parse(text) as Record<string, unknown>);
  } catch (error) {
    return `no answer (${(error as NodeJS.ErrnoException).code ?? String(error)})`;
  }
}

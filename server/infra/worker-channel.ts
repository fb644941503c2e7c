/**
 * The channel between a worker process and its parent (server/primary.ts): it starts, checks and stops the worker, and
 * merges metrics. Nothing about payments passes through it: workers share work through Postgres, as replicas do.
 */
import { type EventEmitter, on } from "node:events";
import type { ProcessMetrics } from "./merged-metrics.ts";

export type ToPrimary =
  | { type: "ready" | "pong" | "scrape" }
  | { type: "failed"; reason: string }
  | { type: "metrics"; metrics: ProcessMetrics };

export type ToWorker = { type: "ping" | "stop" | "collect" } | { type: "scraped"; text: string };

/** Resolves when the message is sent. If the parent is gone, it is dropped, and this process ends as well. */
export const sendToPrimary = (message: ToPrimary): Promise<void> =>
  new Promise((resolve) => {
    if (!process.connected) return resolve();
    process.send?.(message, undefined, undefined, () => resolve());
  });

/** The next message of this type. */
export async function nextMessage<M extends { type: string }, T extends M["type"]>(
  from: EventEmitter,
  type: T,
  withinMs: number,
): Promise<Extract<M, { type: T }>> {
  const messages = on(from, "message", { signal: AbortSignal.timeout(withinMs) });
  for await (const [message] of messages as AsyncIterable<[M]>)
    if (message.type === type) return message as Extract<M, { type: T }>;
  throw new Error("the channel is closed");
}

const SCRAPE_MS = 5_000;

/** The metrics of all workers, merged by the parent. */
export async function scrapeAllWorkers(): Promise<string> {
  const answer = nextMessage<ToWorker, "scraped">(process, "scraped", SCRAPE_MS);
  await sendToPrimary({ type: "scrape" });
  return (await answer).text;
}

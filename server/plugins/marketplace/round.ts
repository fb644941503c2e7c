/**
 * A round of probes of third-party hosts. Each probe and the whole round have a time limit, a host is probed once at a
 * time, and a slow host is not probed again in the same round: so a tarpit delays only its own probes.
 */
import { plainWords } from "../../core/foreign-text.ts";
import type { ProbedTerms } from "../listings/index.ts";
import { LONGEST } from "../listings/listing-text.ts";

/** A probe has no body; only the payment requirement with this `payTo` and `network` counts. */
interface ProbeRequest {
  method: string;
  timeoutMs?: number;
  payTo?: string;
  network?: string;
}
/** Requests the URL without paying; throws an ApiError that explains why the response is not a valid 402. */
export type Prober = (url: string, request: ProbeRequest) => Promise<ProbedTerms>;

const MINUTE_MS = 60_000;
const HEALTHY_MS = 15 * MINUTE_MS;
const LONGEST_MS = 6 * 60 * MINUTE_MS;

/** Every 15 minutes if all is well; after failures from one minute, doubling up to six hours. */
export function nextProbeInMs(failures: number, random: () => number = Math.random): number {
  const base = failures === 0 ? HEALTHY_MS : MINUTE_MS * 2 ** Math.min(failures - 1, 20);
  // Varied by a tenth, so that listings created together are not always probed together.
  return Math.round(Math.min(base, LONGEST_MS) * (0.9 + random() * 0.2));
}

/** The seller's name for itself, otherwise its host and path. */
export function nameOf(name: string | null, url: string): string {
  const { host, pathname } = new URL(url);
  return plainWords(name, LONGEST.name) || plainWords(`${host}${pathname}`, LONGEST.name);
}

export interface RoundLimits {
  /** The number of concurrent probes. */
  inFlight: number;
  /** No probe starts after this time. */
  roundMs: number;
  /** The most probes of one host in one round. */
  perHost: number;
  /** A host that takes longer than this is not probed again in this round. */
  slowMs: number;
}

export const ROUND: RoundLimits = { inFlight: 4, roundMs: 20_000, perHost: 10, slowMs: 2_000 };

interface RoundWork<T extends { host: string }> {
  /** At most one item per host, and none of these hosts. */
  claim(limit: number, exceptHosts: readonly string[]): Promise<T[]>;
  probe(item: T): Promise<void>;
  isStopping(): boolean;
}

/** Returns how many were probed. The first fault of our own ends the round, after the running probes have ended. */
export async function probeRound<T extends { host: string }>(
  work: RoundWork<T>,
  limits: RoundLimits = ROUND,
): Promise<number> {
  const endsAt = performance.now() + limits.roundMs;
  const probed = new Map<string, number>();
  const closed = new Set<string>();
  const running = new Map<string, Promise<void>>();
  const faults: unknown[] = [];
  let count = 0;

  const begin = (item: T): void => {
    const { host } = item;
    const startedAt = performance.now();
    const times = (probed.get(host) ?? 0) + 1;
    probed.set(host, times);
    if (times >= limits.perHost) closed.add(host);
    count += 1;
    const run = work
      .probe(item)
      .catch((error: unknown) => void faults.push(error))
      .finally(() => {
        running.delete(host);
        if (performance.now() - startedAt > limits.slowMs) closed.add(host);
      });
    running.set(host, run);
  };

  const mayBegin = (): boolean =>
    !work.isStopping() && faults.length === 0 && performance.now() < endsAt;
  while (mayBegin()) {
    const free = limits.inFlight - running.size;
    const busy = [...running.keys()];
    const items = free > 0 ? await work.claim(free, [...closed, ...busy]) : [];
    for (const item of items) begin(item);
    // Hosts that were busy at the last claim may be free now.
    if (items.length === 0 && busy.length === 0) break;
    if (running.size > 0 && items.length < Math.max(free, 1)) await Promise.race(running.values());
  }
  await Promise.all(running.values());
  if (faults.length > 0) throw faults[0];
  return count;
}

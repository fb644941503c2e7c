/** When a listing is probed next, and how many failures make it "failing". */
const MINUTE_MS = 60_000;
const HEALTHY_MS = 15 * MINUTE_MS;
const LONGEST_MS = 6 * 60 * MINUTE_MS;

/** One bad minute of a seller is no reason to hide it. */
export const FAILURES_UNTIL_FAILING = 3;
/** While a probe runs; longer than any probe may take. */
export const PROBE_LEASE_MS = 2 * MINUTE_MS;

/** Doubling from one minute to six hours after failures; every 15 minutes when all is well. */
export function nextProbeInMs(failures: number, random: () => number = Math.random): number {
  const base = failures === 0 ? HEALTHY_MS : MINUTE_MS * 2 ** Math.min(failures - 1, 20);
  // Spread by a tenth, so that listings made together are not probed together for ever.
  return Math.round(Math.min(base, LONGEST_MS) * (0.9 + random() * 0.2));
}

/**
 * Estimates the offset to the server's clock from its responses. Times on the screen are the server's, and
 * this device's clock may be minutes off; comparing the two would show past times as future ones.
 */

/** How far the server's clock is ahead of this device's: a range, both ends inclusive. */
export interface ClockOffset {
  leastMs: number;
  mostMs: number;
}

interface TimedAnswer {
  /** The `Date` header: the whole second in which the server began to respond. */
  date: string | null;
  sentAtMs: number;
  receivedAtMs: number;
}

/**
 * Each response bounds the offset, up to the fraction of the second that the header omits and the time that
 * the response took; the intersection of all responses is more precise. Where the ranges do not intersect a
 * clock was changed, and the newest response counts.
 */
export function narrow(
  known: ClockOffset | undefined,
  { date, sentAtMs, receivedAtMs }: TimedAnswer,
): ClockOffset | undefined {
  const dateMs = Date.parse(date ?? "");
  const bounds = { leastMs: dateMs - receivedAtMs, mostMs: dateMs + 999 - sentAtMs };
  // Also false for an unreadable date, and when this device's clock was set back during the request.
  if (!(bounds.leastMs <= bounds.mostMs)) return known;
  const leastMs = Math.max(bounds.leastMs, known?.leastMs ?? bounds.leastMs);
  const mostMs = Math.min(bounds.mostMs, known?.mostMs ?? bounds.mostMs);
  return leastMs <= mostMs ? { leastMs, mostMs } : bounds;
}

/**
 * The smallest correction within the range, so that a correct clock is not changed because the header has no
 * fractions of a second.
 */
export const correctionMs = ({ leastMs, mostMs }: ClockOffset): number =>
  Math.min(Math.max(0, leastMs), mostMs);

let offset: ClockOffset | undefined;

export function learnClock(answer: TimedAnswer): void {
  offset = narrow(offset, answer);
}

/** The current time by the server's clock. */
export const serverNowMs = (): number => Date.now() + (offset ? correctionMs(offset) : 0);

/**
 * The server's clock, learned from its answers. Times on the screen are the server's, and this
 * device's clock may be minutes off; comparing the two would show the past as the future.
 */

/** How far the server's clock is ahead of this device's: somewhere between the two, inclusive. */
export interface ClockOffset {
  leastMs: number;
  mostMs: number;
}

export interface TimedAnswer {
  /** The `Date` header: the whole second in which the server began to answer. */
  date: string | null;
  sentAtMs: number;
  receivedAtMs: number;
}

/**
 * Each answer bounds the offset, by the second its header leaves out and by the time it took; all
 * of them together bound it better. Where they disagree a clock was set, and the newest one counts.
 */
export function narrow(
  known: ClockOffset | undefined,
  { date, sentAtMs, receivedAtMs }: TimedAnswer,
): ClockOffset | undefined {
  const dateMs = Date.parse(date ?? "");
  const told = { leastMs: dateMs - receivedAtMs, mostMs: dateMs + 999 - sentAtMs };
  // False for an unreadable date, too, and when this device's clock was set back meanwhile.
  if (!(told.leastMs <= told.mostMs)) return known;
  const leastMs = Math.max(told.leastMs, known?.leastMs ?? told.leastMs);
  const mostMs = Math.min(told.mostMs, known?.mostMs ?? told.mostMs);
  return leastMs <= mostMs ? { leastMs, mostMs } : told;
}

/** The smallest correction that fits: a right clock is not corrected by the header's coarseness. */
export const correctionMs = ({ leastMs, mostMs }: ClockOffset): number =>
  Math.min(Math.max(0, leastMs), mostMs);

let offset: ClockOffset | undefined;

export function learnClock(answer: TimedAnswer): void {
  offset = narrow(offset, answer);
}

/** Now, by the server's clock. */
export const serverNowMs = (): number => Date.now() + (offset ? correctionMs(offset) : 0);

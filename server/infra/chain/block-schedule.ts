/** Predicts when the next block is due, on a chain with a regular block time. */

/** How many observed blocks are kept, and how many are needed for a schedule. */
const REMEMBERED = 16;
const ENOUGH = 3;
/** The schedule is trusted for this many blocks after the last observation. */
const HOLDS_FOR_BLOCKS = 120;
/**
 * An observation is exact if the block was seen at most this long after it appeared (by a notification, or by polling
 * in short steps).
 */
const EXACT_MS = 120;
/** How long before the due time polling starts. It grows whenever the block was already there. */
const LEAD_MS = 10;
const MAX_LEAD_MS = 160;
const SHORTEST_MS = 100;
/** One block in this many may be late without spoiling the schedule. */
const SOME_LATE = 4;
/** Blocks that miss their due time by more than the interval divided by this have no regular schedule. */
const SHARE = 2;

interface Measures {
  number: bigint;
  phaseMs: number;
  intervalMs: number;
}

interface Seen {
  number: bigint;
  ms: number;
  /** The block may have existed for up to this long before it was seen. */
  lateMs: number;
}

/**
 * All times are those of the request to the endpoint that returned the block. Blocks are seen late and never early: the
 * earliest observation fixes the phase of the schedule, and polling a little before the due time finds out whether it
 * is earlier still.
 */
export class BlockSchedule {
  readonly #configuredMs: number;
  readonly #longestMs: number;
  #seen: readonly Seen[] = [];
  /** Cache: the schedule is read far more often than blocks come. */
  #measured: { of: readonly Seen[]; as: Measures | undefined } | undefined;
  #leadMs = LEAD_MS;
  #isLost = false;
  /** How many of the last blocks in a row were certainly late. */
  #lateOnes = 0;

  constructor(configuredMs: number) {
    this.#configuredMs = configuredMs;
    this.#longestMs = configuredMs * 8;
  }

  /** `lateMs`: how long the block may have existed before it was seen. */
  observe(number: bigint, ms: number, lateMs: number): void {
    const last = this.#seen.at(-1);
    if (last && number <= last.number) {
      // A reorganisation or a lagging node. If the number is far behind, the chain was reset.
      if (last.number - number > BigInt(REMEMBERED)) this.#seen = [];
      return;
    }
    const dueMs = this.dueOf(number);
    // Long before its due time, or certainly long after it: earlier observations no longer predict the next block.
    const offMs = dueMs === undefined ? 0 : Math.max(ms - lateMs - dueMs, dueMs - ms);
    if (offMs > (this.intervalMs ?? 0) / SHARE) this.#seen = [];
    if (lateMs <= EXACT_MS) {
      this.#leadMs = Math.max(this.#leadMs / 2, LEAD_MS);
      this.#isLost = false;
      const isLate = dueMs !== undefined && ms - lateMs > dueMs + LEAD_MS;
      this.#lateOnes = isLate ? this.#lateOnes + 1 : 0;
      this.#remember({ number, ms, lateMs });
      // Single late blocks are normal. After this many in a row, the chain's schedule has shifted.
      if (this.#lateOnes === ENOUGH) {
        this.#lateOnes = 0;
        this.#seen = this.#seen.slice(-ENOUGH);
      }
    } else if (dueMs !== undefined && ms < dueMs + EXACT_MS) {
      // The block existed before it was requested, so its due time is now or earlier. The next request starts earlier,
      // and then polls in short steps.
      if (ms < dueMs) this.#remember({ number, ms, lateMs });
      this.#isLost = this.#leadMs >= MAX_LEAD_MS;
      this.#leadMs = Math.min(this.#leadMs * 4, MAX_LEAD_MS);
    }
  }

  #remember(seen: Seen): void {
    this.#seen = [...this.#seen.slice(1 - REMEMBERED), seen];
  }

  /** True when blocks come regularly but the due time is no longer known. */
  get isLost(): boolean {
    return this.#isLost;
  }

  /** The interval between two blocks; undefined where they come irregularly. */
  get intervalMs(): number | undefined {
    return this.#measure()?.intervalMs;
  }

  /** The first block that is due after `afterMs`. */
  nextDue(afterMs: number): number | undefined {
    const measured = this.#measure();
    if (!measured) return undefined;
    const { phaseMs, intervalMs } = measured;
    const blocks = Math.max(Math.ceil((afterMs - phaseMs) / intervalMs), 1);
    return blocks > HOLDS_FOR_BLOCKS ? undefined : phaseMs + blocks * intervalMs;
  }

  /** How many blocks came between two times; 0 where blocks come irregularly. */
  countBetween(fromMs: number, toMs: number): bigint {
    const measured = this.#measure();
    if (!measured || !Number.isFinite(fromMs)) return 0n;
    const { phaseMs, intervalMs } = measured;
    const until = (ms: number): number => Math.floor((ms - phaseMs) / intervalMs);
    return BigInt(until(toMs) - until(fromMs));
  }

  /** When to start polling for a block with this due time, so that it is not missed. */
  pollAt(dueMs: number): number {
    return dueMs - this.#leadMs;
  }

  dueOf(number: bigint): number | undefined {
    const measured = this.#measure();
    return measured && measured.phaseMs + Number(number - measured.number) * measured.intervalMs;
  }

  #measure(): Measures | undefined {
    if (this.#measured?.of !== this.#seen)
      this.#measured = { of: this.#seen, as: this.#take(this.#seen) };
    return this.#measured.as;
  }

  #take(seen: readonly Seen[]): Measures | undefined {
    const last = seen.at(-1);
    if (!last || seen.length < ENOUGH) return undefined;
    const observations = seen.map(({ number, ms, lateMs }) => ({
      x: Number(number - last.number),
      ms,
      lateMs,
    }));
    const intervalMs = agrees(observations, this.#configuredMs)
      ? this.#configuredMs
      : slope(observations);
    if (intervalMs < SHORTEST_MS || intervalMs > this.#longestMs) return undefined;
    const phases = observations.map(({ x, ms }) => ms - x * intervalMs).sort((a, b) => a - b);
    const [phaseMs = 0] = phases;
    const latestMs = phases[phases.length - 1 - Math.floor(phases.length / SOME_LATE)] ?? phaseMs;
    // Observations that vary this much have no schedule.
    if (latestMs - phaseMs > intervalMs / SHARE) return undefined;
    return { number: last.number, phaseMs, intervalMs };
  }
}

interface BlockObservation {
  /** The block number relative to the newest block. */
  x: number;
  ms: number;
  lateMs: number;
}

/** Whether the observations fit this interval, allowing for the few blocks that a chain delays now and then. */
function agrees(observations: readonly BlockObservation[], intervalMs: number): boolean {
  const latestMs = Math.min(...observations.map(({ x, ms }) => ms - x * intervalMs));
  const isLate = ({ x, ms, lateMs }: BlockObservation): boolean =>
    ms - lateMs - x * intervalMs > latestMs + LEAD_MS;
  return observations.filter(isLate).length <= observations.length / SOME_LATE;
}

/** The interval that fits the observations best, without the few late blocks. */
function slope(observations: readonly BlockObservation[]): number {
  const kept = [...observations];
  for (let spared = Math.floor(observations.length / SOME_LATE); ; spared -= 1) {
    const { intervalMs, startMs } = line(kept);
    if (spared === 0) return intervalMs;
    const certainMs = kept.map(({ x, ms, lateMs }) => ms - lateMs - startMs - x * intervalMs);
    const mostMs = Math.max(...certainMs);
    if (mostMs <= LEAD_MS) return intervalMs;
    kept.splice(certainMs.indexOf(mostMs), 1);
  }
}

/** A least-squares fit; exact observations have more weight. */
function line(observations: readonly BlockObservation[]): { intervalMs: number; startMs: number } {
  const weighted = observations.map(({ x, ms, lateMs }) => ({
    x,
    y: ms - lateMs / 2,
    weight: 1 / (lateMs + LEAD_MS) ** 2,
  }));
  const sum = (of: (point: (typeof weighted)[number]) => number): number =>
    weighted.reduce((total, point) => total + point.weight * of(point), 0);
  const whole = sum(() => 1);
  const [meanX, meanY] = [sum(({ x }) => x) / whole, sum(({ y }) => y) / whole];
  const intervalMs =
    sum(({ x, y }) => (x - meanX) * (y - meanY)) / sum(({ x }) => (x - meanX) ** 2);
  return { intervalMs, startMs: meanY - intervalMs * meanX };
}

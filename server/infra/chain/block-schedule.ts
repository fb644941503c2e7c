/** When the next block is due, on a chain whose blocks come regularly. */

/** So many blocks make a rhythm, ... */
const REMEMBERED = 16;
const ENOUGH = 3;
/** ... and it holds for so many more that nobody looked at. */
const HOLDS_FOR_BLOCKS = 120;
/** A block's moment is known where it was seen no later than this after it came: announced, or asked for in short steps. */
const SHARP_MS = 120;
/** So much before its moment the next one is asked for first; more each time it was there already. */
const LEAD_MS = 10;
const MAX_LEAD_MS = 160;
const SHORTEST_MS = 100;
/** One of so many may be late, and the others keep time all the same. */
const SOME_LATE = 4;
/** Blocks that miss their moment by more than this part of their distance have none. */
const SHARE = 2;

interface Measures {
  number: bigint;
  phaseMs: number;
  intervalMs: number;
}

interface Seen {
  number: bigint;
  ms: number;
  /** So long before that it may have been there. */
  lateMs: number;
}

/**
 * Moments are those at which an endpoint has to be asked for a block so that it tells of it. Blocks are seen late and
 * never early: the moment of the one that was seen soonest is that of all, and asking a little before it finds out
 * whether it is sooner still.
 */
export class BlockSchedule {
  readonly #configuredMs: number;
  readonly #longestMs: number;
  #seen: readonly Seen[] = [];
  /** Of these the measures were taken: it is asked for far more often than blocks come. */
  #measured: { of: readonly Seen[]; as: Measures | undefined } | undefined;
  #leadMs = LEAD_MS;
  #isLost = false;
  /** So many of the last ones came certainly late. */
  #lateOnes = 0;

  constructor(configuredMs: number) {
    this.#configuredMs = configuredMs;
    this.#longestMs = configuredMs * 8;
  }

  /** `lateMs`: how long it may have been there before it was seen. */
  saw(number: bigint, ms: number, lateMs: number): void {
    const last = this.#seen.at(-1);
    if (last && number <= last.number) {
      // A reorganisation, or a node that lags; or, far behind, a chain that was reset.
      if (last.number - number > BigInt(REMEMBERED)) this.#seen = [];
      return;
    }
    const dueMs = this.dueOf(number);
    // Long before its moment, or certainly long after it: what came before says nothing of what comes next.
    const offMs = dueMs === undefined ? 0 : Math.max(ms - lateMs - dueMs, dueMs - ms);
    if (offMs > (this.intervalMs ?? 0) / SHARE) this.#seen = [];
    if (lateMs <= SHARP_MS) {
      this.#leadMs = Math.max(this.#leadMs / 2, LEAD_MS);
      this.#isLost = false;
      const isLate = dueMs !== undefined && ms - lateMs > dueMs + LEAD_MS;
      this.#lateOnes = isLate ? this.#lateOnes + 1 : 0;
      this.#remember({ number, ms, lateMs });
      // One is late now and then; after so many it is the chain that has other moments now.
      if (this.#lateOnes === ENOUGH) {
        this.#lateOnes = 0;
        this.#seen = this.#seen.slice(-ENOUGH);
      }
    } else if (dueMs !== undefined && ms < dueMs + SHARP_MS) {
      // There before it was asked for: its moment is this one, or sooner. Next time it is asked for sooner, and then in short steps.
      if (ms < dueMs) this.#remember({ number, ms, lateMs });
      this.#isLost = this.#leadMs >= MAX_LEAD_MS;
      this.#leadMs = Math.min(this.#leadMs * 4, MAX_LEAD_MS);
    }
  }

  #remember(seen: Seen): void {
    this.#seen = [...this.#seen.slice(1 - REMEMBERED), seen];
  }

  /** Blocks come regularly, and it is not known any more when. */
  get isLost(): boolean {
    return this.#isLost;
  }

  /** Between two blocks; undefined where they come at any time. */
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

  /** How many blocks came between these moments; none is known of where they come at any time. */
  countBetween(fromMs: number, toMs: number): bigint {
    const measured = this.#measure();
    if (!measured || !Number.isFinite(fromMs)) return 0n;
    const { phaseMs, intervalMs } = measured;
    const until = (ms: number): number => Math.floor((ms - phaseMs) / intervalMs);
    return BigInt(until(toMs) - until(fromMs));
  }

  /** When to ask for a block that is due then, so that it is not missed. */
  askAt(dueMs: number): number {
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
    // As irregular as this, and there is none.
    if (latestMs - phaseMs > intervalMs / SHARE) return undefined;
    return { number: last.number, phaseMs, intervalMs };
  }
}

/** A block that was seen. */
interface BlockObservation {
  /** Its number, counted from that of the newest. */
  x: number;
  ms: number;
  lateMs: number;
}

/** Whether they may have come one each so many milliseconds: all but the few that a chain is late with now and then. */
function agrees(observations: readonly BlockObservation[], intervalMs: number): boolean {
  const latestMs = Math.min(...observations.map(({ x, ms }) => ms - x * intervalMs));
  const isLate = ({ x, ms, lateMs }: BlockObservation): boolean =>
    ms - lateMs - x * intervalMs > latestMs + LEAD_MS;
  return observations.filter(isLate).length <= observations.length / SOME_LATE;
}

/** The distance at which they are nearest to when they came, without the few that came late. */
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

/** By least squares; those whose moment is known better count for more. */
function line(observations: readonly BlockObservation[]): { intervalMs: number; startMs: number } {
  const weighed = observations.map(({ x, ms, lateMs }) => ({
    x,
    y: ms - lateMs / 2,
    weight: 1 / (lateMs + LEAD_MS) ** 2,
  }));
  const sum = (of: (point: (typeof weighed)[number]) => number): number =>
    weighed.reduce((total, point) => total + point.weight * of(point), 0);
  const whole = sum(() => 1);
  const [meanX, meanY] = [sum(({ x }) => x) / whole, sum(({ y }) => y) / whole];
  const intervalMs =
    sum(({ x, y }) => (x - meanX) * (y - meanY)) / sum(({ x }) => (x - meanX) ** 2);
  return { intervalMs, startMs: meanY - intervalMs * meanX };
}

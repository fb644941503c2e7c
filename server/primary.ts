/**
 * One command, several processes: starts the one that has the lanes and those that accept, starts each again when it
 * dies, passes their words on, and ends them all. It serves nothing, opens no connection and signs nothing; it holds
 * the listening socket and, locally, the embedded world.
 */
import type { ChildProcess } from "node:child_process";
import cluster, { type Worker } from "node:cluster";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { AggregatorRegistry } from "prom-client";
import type { Role } from "./core/worker-settings.ts";
import type { Told, ToChild, ToPrimary } from "./infra/siblings.ts";
import { StartError } from "./local/start-error.ts";

/** A process that dies is started again after this, and each time it did not live for long after twice as much. */
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 10_000;
/** Lived this long: what it dies of next is another story. */
const LIVED_MS = 60_000;
/** So many short lives in a row, and starting it again will not help. */
const MOST_DEATHS = 6;
/** One that cannot start and says why (mostly: the database is away) may find it better a little later. */
const MOST_FAILURES = 30;
/** A stopping process ends by itself within 30 s; the one with the lanes within a few. */
const STOPPED_MS = 31_000;
const LANES_STOPPED_MS = 6_000;
/** One that was asked to stop by a signal of its own waits so long for everybody's. */
const SIGNALS_MS = 500;
const COLLECT_MS = 2_000;

export interface PrimaryDeps {
  workers: number;
  /** What the children need to know of the embedded world. */
  world?: object | undefined;
  /** Balancers are told before anything stops. */
  isAnnounced: boolean;
  log: (fields: object, text: string) => void;
  /** Nothing can go on: every process has ended. */
  onGivenUp: (reason: string) => void;
  fork?: () => Worker;
}

interface Slot {
  name: string;
  role: Role;
  child: Worker | undefined;
  isHere: boolean;
  isReady: boolean;
  startedAtMs: number;
  shortLives: number;
  restarts: number;
  /** As it told them last. */
  metrics: Told | undefined;
  expecting: Set<number>;
}

export class Primary {
  readonly #deps: PrimaryDeps;
  readonly #lanes: Slot = newSlot("lanes", "lanes");
  readonly #accepting: Slot[];
  readonly #closing = new AbortController();
  readonly #collecting = new Map<number, (slot: Slot, metrics: Told) => void>();
  #collections = 0;
  /** What processes counted that are gone: a sum that shrank would look like a restart of all. */
  #past: Told = [];
  #burials = Promise.resolve();
  #isMigrated = false;
  #started: { resolve: () => void; reject: (error: Error) => void } | undefined;

  constructor(deps: PrimaryDeps) {
    this.#deps = deps;
    this.#accepting = Array.from({ length: deps.workers }, (_, index) =>
      newSlot(String(index + 1), "accepting"),
    );
  }

  get #slots(): Slot[] {
    return [this.#lanes, ...this.#accepting];
  }

  /** Until every process is ready. One that cannot start at first ends it all. */
  async start(): Promise<void> {
    // As this process was started; what has to be built was built.
    cluster.setupPrimary({ exec: process.argv[1] ?? "", args: ["--built"] });
    const started = new Promise<void>((resolve, reject) => {
      this.#started = { resolve, reject };
    });
    for (const slot of this.#slots) this.#fork(slot);
    await started.finally(() => (this.#started = undefined));
  }

  /** The accepting ones first: what they accepted still becomes a payment. True: every one ended by itself. */
  async stop(): Promise<boolean> {
    this.#closing.abort();
    this.#started?.resolve();
    const accepting = await Promise.all(
      this.#accepting.map((slot) => this.#stopOne(slot, STOPPED_MS)),
    );
    const lanes = await this.#stopOne(this.#lanes, LANES_STOPPED_MS);
    return [...accepting, lanes].every(Boolean);
  }

  async #stopOne({ child }: Slot, withinMs: number): Promise<boolean> {
    if (!child || child.isDead()) return true;
    const ended = once(child.process, "exit");
    tell(child, { say: "stop", isAnnounced: this.#deps.isAnnounced });
    const late = setTimeout(() => child.process.kill("SIGKILL"), withinMs);
    const [code] = (await ended) as [number | null];
    clearTimeout(late);
    return code === 0;
  }

  #fork(slot: Slot): void {
    const child = this.#deps.fork?.() ?? cluster.fork();
    slot.child = child;
    closeWhatItNeverTook(child.process);
    slot.isHere = false;
    slot.isReady = false;
    slot.startedAtMs = performance.now();
    let reason: string | undefined;
    child.on("message", (message: ToPrimary) => {
      if (message.say === "failed") ({ reason } = message);
      else this.#hear(slot, message);
    });
    child.process.once("exit", (code, signal) => {
      this.#mourn(slot, {
        reason: reason ?? (signal === null ? `code ${code}` : signal),
        isSaid: reason !== undefined,
      });
    });
    child.process.on("error", (error) => {
      // Without a number it never was; otherwise only a word did not arrive.
      if (child.process.pid === undefined)
        this.#mourn(slot, { reason: error.message, isSaid: true });
    });
  }

  /** The tables first: whoever accepts needs them. */
  #begin(slot: Slot): void {
    const { child, isHere, role, name } = slot;
    if (child && isHere && (role === "lanes" || this.#isMigrated))
      tell(child, { say: "begin", role, name, world: this.#deps.world });
  }

  #hear(slot: Slot, message: ToPrimary): void {
    switch (message.say) {
      case "here":
        slot.isHere = true;
        return this.#begin(slot);
      case "migrated":
        if (this.#isMigrated) return;
        this.#isMigrated = true;
        for (const each of this.#accepting) this.#begin(each);
        return;
      case "ready":
        return this.#welcome(slot);
      case "work":
        return this.#tellLanes(message);
      case "expecting":
        if (message.isExpected) slot.expecting.add(message.chainId);
        else slot.expecting.delete(message.chainId);
        return this.#tellLanes({ ...message, by: slot.name });
      case "told":
        return this.#collecting.get(message.id)?.(slot, message.metrics);
      case "scrape":
        return void this.#scrape(slot, message.id);
      case "leave":
        return void this.#leaveAlone(slot);
      default:
    }
  }

  #welcome(slot: Slot): void {
    slot.isReady = true;
    if (slot !== this.#lanes && slot.child)
      tell(slot.child, { say: "lanes", areUp: this.#lanes.isReady });
    else this.#tellAccepting(true);
    if (this.#slots.every(({ isReady }) => isReady)) this.#started?.resolve();
  }

  #tellLanes(message: ToChild): void {
    if (this.#lanes.child && this.#lanes.isReady) tell(this.#lanes.child, message);
  }

  #tellAccepting(areUp: boolean): void {
    for (const { child } of this.#accepting) if (child) tell(child, { say: "lanes", areUp });
  }

  #mourn(slot: Slot, { reason, isSaid }: { reason: string; isSaid: boolean }): void {
    const wasReady = slot.isReady;
    slot.child = undefined;
    slot.isReady = false;
    const last = slot.metrics ?? [];
    slot.metrics = undefined;
    this.#burials = this.#burials.then(() => this.#bury(last)).catch(() => undefined);
    for (const chainId of slot.expecting)
      this.#tellLanes({ say: "expecting", chainId, isExpected: false, by: slot.name });
    slot.expecting.clear();
    if (slot === this.#lanes && wasReady) this.#tellAccepting(false);
    if (this.#closing.signal.aborted) return;
    if (this.#started) {
      this.#closing.abort();
      this.#started.reject(new StartError(reason));
      return;
    }
    const livedMs = performance.now() - slot.startedAtMs;
    slot.shortLives = livedMs < LIVED_MS ? slot.shortLives + 1 : 1;
    if (slot.shortLives >= (isSaid ? MOST_FAILURES : MOST_DEATHS)) {
      this.#closing.abort();
      this.#deps.onGivenUp(
        `${nameOf(slot)} ended ${slot.shortLives} times in a row within a minute of its start (the last time: ${reason}). Nothing is lost; what is wrong is in the lines above`,
      );
      return;
    }
    const doubledMs = FIRST_PAUSE_MS * 2 ** (slot.shortLives - 1);
    const pauseMs = isSaid ? LONGEST_PAUSE_MS : Math.min(doubledMs, LONGEST_PAUSE_MS);
    this.#deps.log(
      { worker: slot.name, reason, pauseMs },
      `${nameOf(slot)} ended; it is started again`,
    );
    void this.#again(slot, pauseMs);
  }

  async #again(slot: Slot, pauseMs: number): Promise<void> {
    const { signal } = this.#closing;
    await delay(pauseMs, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) return;
    slot.restarts += 1;
    this.#fork(slot);
  }

  /** Its own signal, and nobody else's: it is replaced. A service manager signals all at once, and us as well. */
  async #leaveAlone(slot: Slot): Promise<void> {
    const { child } = slot;
    const { signal } = this.#closing;
    await delay(SIGNALS_MS, undefined, { signal }).catch(() => undefined);
    if (signal.aborted || !child || child !== slot.child) return;
    tell(child, { say: "stop", isAnnounced: false });
  }

  async #scrape(asking: Slot, id: number): Promise<void> {
    try {
      const told = await this.#collect();
      const text = await AggregatorRegistry.aggregate(told).metrics();
      if (asking.child) tell(asking.child, { say: "scraped", id, text });
    } catch (error) {
      this.#deps.log({ err: error }, "the metrics could not be gathered");
    }
  }

  /** Of a process that does not answer in time, what it told last. */
  async #collect(): Promise<Told[]> {
    const id = (this.#collections += 1);
    const asked = this.#slots.filter(({ isReady }) => isReady);
    const missing = new Set(asked);
    await new Promise<void>((resolve) => {
      const late = setTimeout(resolve, COLLECT_MS);
      this.#collecting.set(id, (slot, metrics) => {
        slot.metrics = metrics;
        missing.delete(slot);
        if (missing.size > 0) return;
        clearTimeout(late);
        resolve();
      });
      for (const { child } of asked) if (child) tell(child, { say: "collect", id });
    });
    this.#collecting.delete(id);
    const live = this.#slots.flatMap(({ metrics }) => (metrics ? [metrics] : []));
    return [...live, this.#past, this.#restarts()];
  }

  #restarts(): Told {
    return [
      {
        collect: () => undefined,
        name: "purser_worker_restarts_total",
        help: "Processes of this command that ended and were started again",
        type: "counter" as never,
        aggregator: "sum",
        values: this.#slots.map(({ name, restarts }) => ({
          labels: { worker: name },
          value: restarts,
        })),
      },
    ];
  }

  /** As far as it was told: what a process counted since the last scrape is gone with it. */
  async #bury(last: Told): Promise<void> {
    const counted = last.filter(({ type }) =>
      ["counter", "histogram", "summary"].includes(String(type)),
    );
    if (counted.length === 0) return;
    const past = AggregatorRegistry.aggregate([this.#past, counted]);
    this.#past = await past.getMetricsAsJSON();
  }
}

const newSlot = (name: string, role: Role): Slot => ({
  name,
  role,
  child: undefined,
  isHere: false,
  isReady: false,
  startedAtMs: 0,
  shortLives: 0,
  restarts: 0,
  metrics: undefined,
  expecting: new Set(),
});

const nameOf = ({ role, name }: Slot): string =>
  role === "lanes" ? "The process that has the lanes" : `Worker ${name}`;

interface Connection {
  close(): void;
}

/**
 * A connection on its way to a process that is killed stays open here for ever (`node:cluster` waits for its word), and
 * its caller waits for an answer: it is closed, and the caller hears at once that it has to ask again.
 */
function closeWhatItNeverTook(child: ChildProcess): void {
  const onTheWay = new Map<number, Connection>();
  const send = child.send.bind(child) as (...args: unknown[]) => boolean;
  child.send = (message: { act?: string; seq?: number }, handle?: unknown, ...rest: unknown[]) => {
    if (message.act === "newconn" && message.seq !== undefined)
      onTheWay.set(message.seq, handle as Connection);
    return send(message, handle, ...rest);
  };
  child.on("internalMessage", ({ ack }: { ack?: number }) => {
    if (ack !== undefined) onTheWay.delete(ack);
  });
  child.once("exit", () => {
    for (const connection of onTheWay.values()) connection.close();
  });
}

/** Whoever ends meanwhile needs to be told nothing. */
function tell(child: Worker, message: ToChild): void {
  if (child.isConnected()) child.send(message, () => undefined);
}

/**
 * The primary process of one command with several processes (`node:cluster`): starts the one that has the lanes and the
 * accepting ones, restarts each that exits, passes messages between them, and stops them all. It serves no requests,
 * opens no connections and signs nothing; it holds the listening socket and, in local mode, the local services.
 */
import cluster, { type Worker } from "node:cluster";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { AggregatorRegistry } from "prom-client";
import {
  closeUnacceptedConnections,
  nameOf,
  newWorkerSlot,
  WORKER_TIMINGS,
  sendTo,
  type WorkerTimings,
  type WorkerSlot,
} from "./infra/children.ts";
import type { MetricsSnapshot, ToChild, ToPrimary } from "./infra/worker-messages.ts";
import { StartError } from "./local/start-error.ts";

interface PrimaryDeps {
  workers: number;
  /** The facts about local services that the children need. */
  world?: object | undefined;
  /** Load balancers are notified before anything stops. */
  isAnnounced: boolean;
  log: (fields: object, text: string) => void;
  /** Called when the service cannot continue: every process has ended. */
  onGivenUp: (reason: string) => void;
  /** The time limit for stopping all of them, the one with the lanes last, because it finishes the others' work. */
  stopsWithinMs: number;
  fork?: () => Worker;
  timings?: Partial<WorkerTimings>;
}

/** Makes glibc return freed memory to the system, as in the image, however this process was started. */
const MEMORY_GIVEN_BACK = {
  MALLOC_ARENA_MAX: process.env["MALLOC_ARENA_MAX"] ?? "2",
  MALLOC_TRIM_THRESHOLD_: process.env["MALLOC_TRIM_THRESHOLD_"] ?? "131072",
};

/** Otherwise V8 drops idle compiled code after a quiet half minute, and the next burst compiles it again. */
const KEEPS_CODE = "--no-memory-reducer";

export class Primary {
  readonly #deps: PrimaryDeps;
  readonly #timings: WorkerTimings;
  readonly #lanes: WorkerSlot = newWorkerSlot("lanes", "lanes");
  readonly #accepting: WorkerSlot[];
  readonly #closing = new AbortController();
  readonly #collecting = new Map<number, (slot: WorkerSlot, metrics: MetricsSnapshot) => void>();
  #collections = 0;
  /** Counters of processes that ended: a sum that shrinks would look like a restart of all. */
  #past: MetricsSnapshot = [];
  #merges = Promise.resolve();
  #isMigrated = false;
  #started: { resolve: () => void; reject: (error: Error) => void } | undefined;

  constructor(deps: PrimaryDeps) {
    this.#deps = deps;
    this.#timings = { ...WORKER_TIMINGS, ...deps.timings };
    this.#accepting = Array.from({ length: deps.workers }, (_, index) =>
      newWorkerSlot(String(index + 1), "accepting"),
    );
  }

  get #slots(): WorkerSlot[] {
    return [this.#lanes, ...this.#accepting];
  }

  /** Resolves when every process is ready. If one cannot start at first, all are stopped. */
  async start(): Promise<void> {
    // With the arguments of this process; everything is already built.
    cluster.setupPrimary({
      exec: process.argv[1] ?? "",
      args: ["--built"],
      execArgv: [...process.execArgv, KEEPS_CODE],
    });
    const started = new Promise<void>((resolve, reject) => {
      this.#started = { resolve, reject };
    });
    const looking = setInterval(() => this.#lookAfterAll(), this.#timings.pingMs);
    this.#closing.signal.addEventListener("abort", () => clearInterval(looking));
    for (const slot of this.#slots) this.#fork(slot);
    await started.finally(() => (this.#started = undefined));
  }

  /**
   * The accepting processes first: what they accepted still becomes a payment. Returns true if every one ended by
   * itself.
   */
  async stop(): Promise<boolean> {
    this.#closing.abort();
    this.#started?.resolve();
    const endMs = performance.now() + this.#deps.stopsWithinMs;
    const accepting = await Promise.all(
      this.#accepting.map((slot) => this.#stopOne(slot, this.#timings.stoppedMs)),
    );
    const lanes = await this.#stopOne(this.#lanes, endMs - performance.now());
    return [...accepting, lanes].every(Boolean);
  }

  async #stopOne(slot: WorkerSlot, withinMs: number): Promise<boolean> {
    const { child } = slot;
    if (!child || child.isDead()) return true;
    const ended = once(child.process, "exit");
    this.#requestStop(slot);
    const late = setTimeout(() => child.process.kill("SIGKILL"), withinMs);
    const [code] = (await ended) as [number | null];
    clearTimeout(late);
    return code === 0;
  }

  #requestStop({ child }: WorkerSlot): void {
    if (child) sendTo(child, { type: "stop", isAnnounced: this.#deps.isAnnounced });
  }

  #fork(slot: WorkerSlot): void {
    const child = this.#deps.fork?.() ?? cluster.fork(MEMORY_GIVEN_BACK);
    // Added first, because an error event without a listener throws.
    child.on("error", (error) => {
      // Without a pid the process was never started; otherwise only a message was not delivered.
      if (child.process.pid !== undefined) return;
      slot.reason = error.message;
      this.#onChildExit(slot, error.message);
    });
    slot.child = child;
    slot.isHere = false;
    slot.isReady = false;
    slot.reason = undefined;
    slot.readyByMs = performance.now() + this.#timings.readyMs;
    closeUnacceptedConnections(child.process);
    child.on("message", (message: ToPrimary) => this.#receive(slot, message));
    child.process.once("exit", (code, signal) => {
      this.#onChildExit(slot, signal ?? `code ${code}`);
    });
  }

  /** A process that hangs is killed, and then restarted like any that exits. */
  #lookAfterAll(): void {
    const { pingMs, mostUnanswered } = this.#timings;
    for (const slot of this.#slots) {
      const { child, isReady } = slot;
      if (!child || child.process.killed) continue;
      if (!isReady) {
        if (performance.now() > slot.readyByMs) this.#end(slot, "was not ready in time");
      } else if (slot.unanswered >= mostUnanswered) {
        this.#end(slot, `did not respond for ${(pingMs * mostUnanswered) / 1_000} s`);
      } else {
        slot.unanswered += 1;
        sendTo(child, { type: "ping" });
      }
    }
  }

  #end(slot: WorkerSlot, reason: string): void {
    slot.reason = `it ${reason}`;
    this.#deps.log({ worker: slot.name }, `${nameOf(slot)} ${reason}; killing it`);
    slot.child?.process.kill("SIGKILL");
  }

  /** The migrations first: accepting processes need the tables. */
  #begin(slot: WorkerSlot): void {
    const { child, isHere, role, name } = slot;
    if (!child || !isHere) return;
    const { migratedMs, readyMs } = this.#timings;
    slot.readyByMs = performance.now() + (role === "lanes" ? migratedMs : readyMs);
    if (role === "lanes" || this.#isMigrated)
      sendTo(child, { type: "begin", role, name, world: this.#deps.world });
    // It waits for the process that migrates.
    else slot.readyByMs = Number.POSITIVE_INFINITY;
  }

  #receive(slot: WorkerSlot, message: ToPrimary): void {
    slot.unanswered = 0;
    switch (message.type) {
      case "failed":
        slot.reason = message.reason;
        return;
      case "here":
        slot.isHere = true;
        // A stop message that was sent before the process could receive it is lost.
        return this.#closing.signal.aborted ? this.#requestStop(slot) : this.#begin(slot);
      case "migrated":
        slot.readyByMs = performance.now() + this.#timings.readyMs;
        if (this.#isMigrated) return;
        this.#isMigrated = true;
        for (const each of this.#accepting) this.#begin(each);
        return;
      case "ready":
        return this.#welcome(slot);
      case "work":
        return this.#notifyLanes(message);
      case "metrics":
        return this.#collecting.get(message.id)?.(slot, message.metrics);
      case "scrape":
        return void this.#scrape(slot, message.id);
      case "leave":
        return void this.#leaveAlone(slot);
      default:
    }
  }

  #welcome(slot: WorkerSlot): void {
    slot.isReady = true;
    slot.readyAtMs = performance.now();
    if (slot !== this.#lanes && slot.child)
      sendTo(slot.child, { type: "lanes", areUp: this.#lanes.isReady });
    else this.#notifyAccepting(true);
    if (this.#slots.every(({ isReady }) => isReady)) this.#started?.resolve();
  }

  #notifyLanes(message: ToChild): void {
    if (this.#lanes.child && this.#lanes.isReady) sendTo(this.#lanes.child, message);
  }

  #notifyAccepting(areUp: boolean): void {
    // A process that is not ready yet is notified when it is.
    for (const { child, isReady } of this.#accepting)
      if (child && isReady) sendTo(child, { type: "lanes", areUp });
  }

  #onChildExit(slot: WorkerSlot, code: string): void {
    const wasReady = slot.isReady;
    const isSaid = slot.reason !== undefined;
    const reason = slot.reason ?? code;
    slot.child = undefined;
    slot.isReady = false;
    const last = slot.metrics ?? [];
    slot.metrics = undefined;
    this.#merges = this.#merges.then(() => this.#mergeMetrics(last)).catch(() => undefined);
    if (slot === this.#lanes && wasReady) this.#notifyAccepting(false);
    if (this.#closing.signal.aborted) return;
    if (this.#started) {
      this.#closing.abort();
      this.#started.reject(new StartError(reason));
      return;
    }
    const { livedMs, mostFailures, mostDeaths, firstPauseMs, longestPauseMs } = this.#timings;
    // A process that was never ready counts as short-lived, however long it took.
    if (wasReady && performance.now() - slot.readyAtMs > livedMs) slot.failures = slot.deaths = 0;
    const times = isSaid ? (slot.failures += 1) : (slot.deaths += 1);
    if (times >= (isSaid ? mostFailures : mostDeaths)) {
      this.#closing.abort();
      this.#deps.onGivenUp(
        `${nameOf(slot)} ended ${times} times in a row before it was ready for a minute (last reason: ${reason}). No data is lost; see the log lines above for the cause`,
      );
      return;
    }
    const pauseMs = isSaid
      ? longestPauseMs
      : Math.min(firstPauseMs * 2 ** (slot.deaths - 1), longestPauseMs);
    this.#deps.log(
      { worker: slot.name, reason, pauseMs },
      `${nameOf(slot)} ended; starting it again`,
    );
    void this.#again(slot, pauseMs);
  }

  async #again(slot: WorkerSlot, pauseMs: number): Promise<void> {
    const { signal } = this.#closing;
    await delay(pauseMs, undefined, { signal }).catch(() => undefined);
    if (signal.aborted) return;
    slot.restarts += 1;
    try {
      this.#fork(slot);
    } catch (error) {
      slot.reason = `it could not be started: ${(error as Error).message}`;
      this.#onChildExit(slot, slot.reason);
    }
  }

  /**
   * The worker alone received a stop signal, so it is replaced. A service manager signals all processes, including this
   * one.
   */
  async #leaveAlone(slot: WorkerSlot): Promise<void> {
    const { child } = slot;
    const { signal } = this.#closing;
    await delay(this.#timings.signalsMs, undefined, { signal }).catch(() => undefined);
    if (signal.aborted || !child || child !== slot.child) return;
    sendTo(child, { type: "stop", isAnnounced: false });
  }

  async #scrape(requester: WorkerSlot, id: number): Promise<void> {
    try {
      const snapshots = await this.#collect();
      const text = await AggregatorRegistry.aggregate(snapshots).metrics();
      if (requester.child) sendTo(requester.child, { type: "scraped", id, text });
    } catch (error) {
      this.#deps.log({ err: error }, "the metrics could not be collected");
    }
  }

  /**
   * For a process that does not respond in time, the counters of its last snapshot are used; its gauges would be out of
   * date.
   */
  async #collect(): Promise<MetricsSnapshot[]> {
    const id = (this.#collections += 1);
    const asked = this.#slots.filter(({ isReady }) => isReady);
    const missing = new Set(asked);
    await new Promise<void>((resolve) => {
      const late = setTimeout(resolve, this.#timings.collectMs);
      this.#collecting.set(id, (slot, metrics) => {
        slot.metrics = metrics;
        missing.delete(slot);
        if (missing.size > 0) return;
        clearTimeout(late);
        resolve();
      });
      for (const { child } of asked) if (child) sendTo(child, { type: "collect", id });
    });
    this.#collecting.delete(id);
    for (const slot of missing) slot.metrics = slot.metrics?.filter(isCounted);
    const live = this.#slots.flatMap(({ metrics }) => (metrics ? [metrics] : []));
    return [...live, this.#past, this.#restarts()];
  }

  #restarts(): MetricsSnapshot {
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

  /** Adds the counters of the last snapshot: what the process counted after it is lost. */
  async #mergeMetrics(last: MetricsSnapshot): Promise<void> {
    const counted = last.filter(isCounted);
    if (counted.length === 0) return;
    const past = AggregatorRegistry.aggregate([this.#past, counted]);
    this.#past = await past.getMetricsAsJSON();
  }
}

const isCounted = ({ type }: MetricsSnapshot[number]): boolean =>
  ["counter", "histogram", "summary"].includes(String(type));

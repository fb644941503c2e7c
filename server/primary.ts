/**
 * The parent process of one command with several processes (`node:cluster`). It starts the workers, each a whole
 * replica, restarts each that exits, merges their metrics, and stops them all. It serves no requests and signs nothing;
 * it holds the listening socket and, in local mode, the local services.
 */
import type { ChildProcess } from "node:child_process";
import cluster, { type Worker } from "node:cluster";
import { setTimeout as delay } from "node:timers/promises";
import { Counter, Registry } from "prom-client";
import { isCounted, mergeMetrics, type ProcessMetrics } from "./infra/merged-metrics.ts";
import { nextMessage, type ToPrimary, type ToWorker } from "./infra/worker-channel.ts";
import { StartError } from "./local/start-error.ts";

export const WORKER_TIMINGS = {
  /** The pause before a restart. It doubles with each short life. */
  firstPauseMs: 100,
  longestPauseMs: 5_000,
  /** After this many short lives in a row, with two minutes of pauses, restarting will not help. */
  mostShortLives: 30,
  /** A worker that was ready for this long had no short life. */
  longLifeMs: 60_000,
  pingMs: 5_000,
  /** Counted in pings and not in time: if this process itself was blocked, no worker is late. */
  mostPings: 6,
  mostPingsUntilReady: 24,
  /** A little longer than a worker's own limit for a stop. */
  stoppedMs: 31_000,
  collectMs: 2_000,
};
export type WorkerTimings = typeof WORKER_TIMINGS;

export interface PrimaryDeps {
  workers: number;
  /** Added to the environment of each worker. */
  environment?: Record<string, string>;
  log: (fields: object, text: string) => void;
  /** Called when the service cannot continue. */
  onGivenUp: (reason: string) => void;
  fork?: (environment: Record<string, string>) => Worker;
  timings?: Partial<WorkerTimings>;
}

interface Slot {
  name: string;
  child: Worker | undefined;
  readyAtMs: number | undefined;
  unansweredPings: number;
  /** Why it could not start, or why it is being killed. */
  reason: string | undefined;
  /** The last metrics of its process, and the counters of the processes before it. */
  metrics: ProcessMetrics;
  past: ProcessMetrics;
}

export class Primary {
  readonly #deps: PrimaryDeps;
  readonly #timings: WorkerTimings;
  readonly #slots: Slot[];
  readonly #closing = new AbortController();
  readonly #registry = new Registry();
  readonly #restarts: Counter;
  #running: Promise<void>[] = [];
  /** Until every worker has been ready. */
  #start: { done: () => void; failed: (error: Error) => void } | undefined;
  #isStoppedCleanly = true;

  constructor(deps: PrimaryDeps) {
    this.#deps = deps;
    this.#timings = { ...WORKER_TIMINGS, ...deps.timings };
    this.#slots = Array.from({ length: deps.workers }, (_, index) => ({
      name: String(index + 1),
      child: undefined,
      readyAtMs: undefined,
      unansweredPings: 0,
      reason: undefined,
      metrics: [],
      past: [],
    }));
    this.#restarts = new Counter({
      name: "purser_worker_restarts_total",
      help: "Processes of this command that ended and were started again",
      labelNames: ["worker"],
      registers: [this.#registry],
    });
    for (const { name } of this.#slots) this.#restarts.inc({ worker: name }, 0);
  }

  /** Resolves when every worker is ready. If one cannot start at first, none is left. */
  async start(): Promise<void> {
    // With the arguments of this process; everything is already built.
    cluster.setupPrimary({
      exec: process.argv[1] ?? "",
      args: ["--built"],
    });
    const pinging = setInterval(() => this.#pingAll(), this.#timings.pingMs);
    this.#closing.signal.addEventListener("abort", () => clearInterval(pinging));
    const started = new Promise<void>((done, failed) => {
      this.#start = { done, failed };
    });
    this.#running = this.#slots.map((slot) => this.#keepRunning(slot));
    await started;
  }

  /** Stops all at once, as replicas are stopped. Returns true if every one ended by itself. */
  async stop(): Promise<boolean> {
    this.#closing.abort();
    this.#start?.done();
    for (const { child } of this.#slots) send(child, { type: "stop" });
    const late = setTimeout(() => {
      for (const { child } of this.#slots) child?.process.kill("SIGKILL");
    }, this.#timings.stoppedMs);
    await Promise.all(this.#running);
    clearTimeout(late);
    return this.#isStoppedCleanly;
  }

  async #keepRunning(slot: Slot): Promise<void> {
    const { longLifeMs, mostShortLives, firstPauseMs, longestPauseMs } = this.#timings;
    const { signal } = this.#closing;
    for (let shortLives = 0; ;) {
      const { reason, readyForMs } = await this.#run(slot);
      if (signal.aborted) return;
      if (this.#start) {
        this.#closing.abort();
        return this.#start.failed(new StartError(reason));
      }
      shortLives = readyForMs > longLifeMs ? 1 : shortLives + 1;
      if (shortLives >= mostShortLives) {
        this.#closing.abort();
        return this.#deps.onGivenUp(
          `worker ${slot.name} ended ${shortLives} times in a row before it was ready for a minute (last reason: ${reason}). No data is lost; see the log lines above for the cause`,
        );
      }
      const pauseMs = Math.min(firstPauseMs * 2 ** (shortLives - 1), longestPauseMs);
      const fields = { worker: slot.name, reason, pauseMs };
      this.#deps.log(fields, `worker ${slot.name} ended; starting it again`);
      await delay(pauseMs, undefined, { signal }).catch(() => undefined);
      if (signal.aborted) return;
      this.#restarts.inc({ worker: slot.name });
    }
  }

  /** Runs one process from its start to its end. */
  async #run(slot: Slot): Promise<{ reason: string; readyForMs: number }> {
    Object.assign(slot, { readyAtMs: undefined, unansweredPings: 0, reason: undefined });
    let end: string;
    try {
      end = await this.#fork(slot);
    } catch (error) {
      end = `it could not be started: ${(error as Error).message}`;
    }
    slot.child = undefined;
    // What it counted after its last metrics is lost.
    const counted = slot.metrics.filter(isCounted);
    slot.metrics = [];
    slot.past = await mergeMetrics([slot.past, counted]).getMetricsAsJSON();
    const { reason = end, readyAtMs } = slot;
    return { reason, readyForMs: readyAtMs === undefined ? 0 : performance.now() - readyAtMs };
  }

  /** Resolves when the process has ended and all its messages have been received. */
  #fork(slot: Slot): Promise<string> {
    const environment = { ...this.#deps.environment, PURSER_WORKER: slot.name };
    const child = this.#deps.fork?.(environment) ?? cluster.fork(environment);
    slot.child = child;
    closeUnacceptedConnections(child.process);
    child.on("message", (message: ToPrimary) => this.#receive(slot, child, message));
    return new Promise((resolve) => {
      child.on("error", (error) => {
        // Without a pid the process was never started; otherwise only a message was not delivered.
        if (child.process.pid === undefined) resolve(error.message);
      });
      child.process.once("close", (code: number | null, signal: NodeJS.Signals | null) => {
        if (this.#closing.signal.aborted && code !== 0) this.#isStoppedCleanly = false;
        resolve(signal ?? `code ${code}`);
      });
    });
  }

  #receive(slot: Slot, child: Worker, message: ToPrimary): void {
    if (slot.readyAtMs !== undefined) slot.unansweredPings = 0;
    switch (message.type) {
      case "failed":
        slot.reason = message.reason;
        return;
      case "ready":
        slot.readyAtMs = performance.now();
        slot.unansweredPings = 0;
        // A stop message that was sent before the process could receive it is lost.
        if (this.#closing.signal.aborted) send(child, { type: "stop" });
        if (this.#slots.every(({ readyAtMs }) => readyAtMs !== undefined)) {
          this.#start?.done();
          this.#start = undefined;
        }
        return;
      case "metrics":
        slot.metrics = message.metrics;
        return;
      case "scrape":
        return void this.#scrapeFor(child);
      default:
    }
  }

  /** A process that hangs is killed, and then restarted like any that exits. */
  #pingAll(): void {
    const { pingMs, mostPings, mostPingsUntilReady } = this.#timings;
    for (const slot of this.#slots) {
      const isReady = slot.readyAtMs !== undefined;
      const most = isReady ? mostPings : mostPingsUntilReady;
      if (slot.unansweredPings < most) {
        slot.unansweredPings += 1;
        send(slot.child, { type: "ping" });
      } else if (slot.child && !slot.child.process.killed) {
        const seconds = (most * pingMs) / 1_000;
        slot.reason = `it ${isReady ? "did not respond" : "was not ready"} for ${seconds} s`;
        slot.child.process.kill("SIGKILL");
      }
    }
  }

  async #scrapeFor(requester: Worker): Promise<void> {
    try {
      await Promise.all(this.#slots.map((slot) => this.#collect(slot)));
      const text = await mergeMetrics([
        ...this.#slots.flatMap(({ metrics, past }) => [metrics, past]),
        await this.#registry.getMetricsAsJSON(),
      ]).metrics();
      send(requester, { type: "scraped", text });
    } catch (error) {
      this.#deps.log({ err: error }, "the metrics could not be collected");
    }
  }

  async #collect(slot: Slot): Promise<void> {
    const { child, readyAtMs } = slot;
    if (!child || readyAtMs === undefined) return;
    const answer = nextMessage<ToPrimary, "metrics">(child, "metrics", this.#timings.collectMs);
    send(child, { type: "collect" });
    await answer.catch(() => {
      // Its last counters are still true; its gauges are not.
      slot.metrics = slot.metrics.filter(isCounted);
    });
  }
}

/** Messages to a process that exits meanwhile are dropped. */
function send(child: Worker | undefined, message: ToWorker): void {
  if (child?.isConnected()) child.send(message, () => undefined);
}

interface Connection {
  close(): void;
}

/**
 * Closes the connections that were handed to a worker which exits before it acknowledged them. `node:cluster` would
 * keep them open forever and the client would wait; when they close, the client retries at once.
 */
function closeUnacceptedConnections(child: ChildProcess): void {
  // A process that could not be started has no channel.
  if (!child.channel) return;
  const onTheWay = new Map<number, Connection>();
  const sendAny = child.send.bind(child) as (...args: unknown[]) => boolean;
  child.send = (message: { act?: string; seq?: number }, handle?: unknown, ...rest: unknown[]) => {
    if (message.act === "newconn" && message.seq !== undefined)
      onTheWay.set(message.seq, handle as Connection);
    return sendAny(message, handle, ...rest);
  };
  child.on("internalMessage", ({ ack }: { ack?: number }) => {
    if (ack !== undefined) onTheWay.delete(ack);
  });
  child.once("exit", () => {
    for (const connection of onTheWay.values()) connection.close();
  });
}

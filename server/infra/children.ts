/**
 * State of one worker process, as the primary process (server/primary.ts) tracks it, and the timeouts that apply to it.
 */
import type { ChildProcess } from "node:child_process";
import type { Worker } from "node:cluster";
import type { Role } from "../core/worker-settings.ts";
import type { MetricsSnapshot, ToChild } from "./worker-messages.ts";

export const WORKER_TIMINGS = {
  /** Restart back-off after an exit. It doubles with each short-lived process. */
  firstPauseMs: 100,
  longestPauseMs: 10_000,
  /** After being ready for this long, an exit no longer counts as short-lived. */
  livedMs: 60_000,
  /** After this many short-lived processes in a row, restarting will not help. */
  mostDeaths: 6,
  /** A process that reports why it cannot start (mostly: the database is unreachable) gets more attempts. */
  mostFailures: 30,
  /** Time to connect, and after its role was assigned, to become ready. A long migration is no reason to restart it. */
  readyMs: 120_000,
  migratedMs: 3_600_000,
  /** Counted in pings and not in time: if this process itself was blocked, no worker is late. */
  pingMs: 5_000,
  mostUnanswered: 6,
  /**
   * If a worker receives a stop signal, the primary waits this long for the same signal (a service manager signals all
   * processes) before it replaces the worker.
   */
  stoppedMs: 31_000,
  /** How long a worker that got a stop signal of its own waits for the signal to all processes. */
  signalsMs: 500,
  collectMs: 2_000,
};
export type WorkerTimings = typeof WORKER_TIMINGS;

export interface WorkerSlot {
  name: string;
  role: Role;
  child: Worker | undefined;
  isHere: boolean;
  isReady: boolean;
  readyAtMs: number;
  readyByMs: number;
  /** Pings without an answer. */
  unanswered: number;
  /** The reason it reported before its exit, or for which it is being stopped. */
  reason: string | undefined;
  /** Short-lived processes in a row, with and without a reported reason. */
  failures: number;
  deaths: number;
  restarts: number;
  /** The last metrics it sent. */
  metrics: MetricsSnapshot | undefined;
}

export const newWorkerSlot = (name: string, role: Role): WorkerSlot => ({
  name,
  role,
  child: undefined,
  isHere: false,
  isReady: false,
  readyAtMs: 0,
  readyByMs: 0,
  unanswered: 0,
  reason: undefined,
  failures: 0,
  deaths: 0,
  restarts: 0,
  metrics: undefined,
});

export const nameOf = ({ role, name }: WorkerSlot): string =>
  role === "lanes" ? "The process that has the lanes" : `Worker ${name}`;

interface Connection {
  close(): void;
}

/**
 * Closes the connections that were handed to a worker which exits before it acknowledged them. `node:cluster` would
 * keep them open forever and the client would wait; when they close, the client retries at once.
 */
export function closeUnacceptedConnections(child: ChildProcess): void {
  // A process that could not be started has no channel.
  if (!child.channel) return;
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

/** Messages to a process that exits meanwhile are dropped. */
export function sendTo(child: Worker, message: ToChild): void {
  if (child.isConnected()) child.send(message, () => undefined);
}

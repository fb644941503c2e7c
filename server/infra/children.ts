/** One of several processes, as the one that started it knows it (server/primary.ts), and how long it waits for what. */
import type { ChildProcess } from "node:child_process";
import type { Worker } from "node:cluster";
import type { Role } from "../core/worker-settings.ts";
import type { MetricsSnapshot, ToChild } from "./worker-messages.ts";

export const PATIENCE = {
  /** A process that dies is started again after this, and each time it did not live for long after twice as much. */
  firstPauseMs: 100,
  longestPauseMs: 10_000,
  /** Ready for so long: what it dies of next is another story. */
  livedMs: 60_000,
  /** So many short lives in a row, and starting it again will not help. */
  mostDeaths: 6,
  /** One that cannot start and says why (mostly: the database is away) may find it better a little later. */
  mostFailures: 30,
  /** To hear, and once it was told what for, to be ready. A long migration is no reason to begin it again. */
  readyMs: 120_000,
  migratedMs: 3_600_000,
  /** Counted and not timed: where this process was held up itself, nobody is late. */
  pingMs: 5_000,
  mostUnanswered: 6,
  /** An accepting process ends by itself within 30 s. */
  stoppedMs: 31_000,
  /** One that was asked to stop by a signal of its own waits so long for everybody's. */
  signalsMs: 500,
  collectMs: 2_000,
};
export type Patience = typeof PATIENCE;

export interface Slot {
  name: string;
  role: Role;
  child: Worker | undefined;
  isHere: boolean;
  isReady: boolean;
  readyAtMs: number;
  readyByMs: number;
  /** Pings since it was heard of. */
  unanswered: number;
  /** What it said it ends of, or is ended for. */
  reason: string | undefined;
  /** Short lives in a row, that ended with a reason and without. */
  failures: number;
  deaths: number;
  restarts: number;
  /** As it told them last. */
  metrics: MetricsSnapshot | undefined;
  expecting: Set<number>;
}

export const newSlot = (name: string, role: Role): Slot => ({
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
  expecting: new Set(),
});

export const nameOf = ({ role, name }: Slot): string =>
  role === "lanes" ? "The process that has the lanes" : `Worker ${name}`;

interface Connection {
  close(): void;
}

/**
 * A connection on its way to a process that is killed stays open here for ever (`node:cluster` waits for its word), and
 * its caller waits for an answer: it is closed, and the caller hears at once that it has to ask again.
 */
export function closeUnacceptedConnections(child: ChildProcess): void {
  // Nothing can be sent to what could not be started.
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

/** Whoever ends meanwhile needs to be told nothing. */
export function sendTo(child: Worker, message: ToChild): void {
  if (child.isConnected()) child.send(message, () => undefined);
}

/** The worker processes: their number, and their shares of connections and limits. */
import { availableParallelism, totalmem } from "node:os";

export interface WorkerSettings {
  /** The number of processes; each is a whole replica. */
  workers: number;
  /** This process's name in the log, if there are several. */
  worker: string | undefined;
}

export const MAX_WORKERS = 256;
/** The memory that one process may need under load. */
const MEMORY_EACH = 256 * 2 ** 20;

/** One per core, or fewer if the container has less memory. The parent, and the system, need the memory of one. */
export const workersFor = ({ cores, memory }: { cores: number; memory: number }): number =>
  Math.max(1, Math.min(cores, Math.floor(memory / MEMORY_EACH) - 1, MAX_WORKERS));

/** For this machine, or for the resources that the container gets. */
export function usualWorkers(): number {
  const given = process.constrainedMemory();
  const memory = given > 0 ? Math.min(given, totalmem()) : totalmem();
  return workersFor({ cores: availableParallelism(), memory });
}

export interface Connections {
  /** Separate pools, so that web requests, agents' payments and the engine do not take each other's connections. */
  money: number;
  prisma: number;
  engine: number;
}

const OF_ONE: Connections = { money: 16, prisma: 10, engine: 10 };
/** With fewer, a burst would wait at the pool instead of at the database. */
const LEAST: Connections = { money: 4, prisma: 3, engine: 4 };

type Workers = Pick<WorkerSettings, "workers">;

/** Workers share the connections that one process would have, so that four of them fit a stock Postgres. */
export function connectionsOf({ workers }: Workers): Connections {
  const share = (of: keyof Connections): number =>
    Math.max(LEAST[of], Math.ceil(OF_ONE[of] / workers));
  return { money: share("money"), prisma: share("prisma"), engine: share("engine") };
}

/** Connections of the jobs and of the listeners, in every process. */
const JOBS = 11;
const LISTENERS = 2;

/** The most connections that all processes of one command open. */
export function connectionsInAll({ workers }: Workers): number {
  const { money, prisma, engine } = connectionsOf({ workers });
  return workers * (money + prisma + engine + JOBS + LISTENERS);
}

/**
 * One process's share of a limit that each process counts for itself. Connections are distributed in turn, so an
 * address has about the same number in each process. Four standard deviations are added, so that clients within the
 * limit are not refused.
 */
export function shareOf(limit: number, { workers }: Workers): number {
  const mean = limit / workers;
  return Math.min(limit, Math.ceil(mean + 4 * Math.sqrt(mean)));
}

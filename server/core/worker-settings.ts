/** The worker processes: their number, their roles, and their shares of connections and limits. */
import { availableParallelism, totalmem } from "node:os";

/**
 * `whole`: everything in one process. With several processes, the `accepting` ones serve requests, and one has the
 * `lanes`: it alone sends transactions, runs the jobs and reconciles, and it listens on no port.
 */
export type Role = "whole" | "accepting" | "lanes";

export interface WorkerSettings {
  /** The number of accepting processes; with 1 there is one process for everything. */
  workers: number;
  role: Role;
  /** This process's name in the log, if there are several. */
  worker: string | undefined;
}

export const MAX_WORKERS = 256;
/** The memory that one process may need under load. */
const MEMORY_EACH = 256 * 2 ** 20;

/** One per core, or fewer if the container has less memory; one more process has the lanes. */
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

const WHOLE: Connections = { money: 16, prisma: 10, engine: 10 };
/** With fewer, a burst would wait at the pool instead of at the database. */
const LEAST: Connections = { money: 4, prisma: 3, engine: 2 };
const OF_THE_LANES: Connections = { money: 4, prisma: 4, engine: 10 };

/**
 * Accepting processes share the connections that one process would have; their engine only accepts and looks up
 * payments.
 */
export function connectionsOf({
  role,
  workers,
}: Pick<WorkerSettings, "role" | "workers">): Connections {
  if (role === "lanes") return OF_THE_LANES;
  if (role !== "accepting") return WHOLE;
  const share = (of: keyof Connections): number =>
    Math.max(LEAST[of], Math.ceil(WHOLE[of] / workers));
  return { money: share("money"), prisma: share("prisma"), engine: Math.min(4, share("engine")) };
}

/** Connections of the jobs, in the process that runs them, and of the listeners, in every process. */
const JOBS = 11;
const LISTENERS = 2;

/** The most connections that all processes of one command open. */
export function connectionsInAll({ workers }: Pick<WorkerSettings, "workers">): number {
  const each = (role: Role): number =>
    Object.values(connectionsOf({ role, workers })).reduce((sum, count) => sum + count, LISTENERS);
  return workers === 1 ? each("whole") + JOBS : workers * each("accepting") + each("lanes") + JOBS;
}

/**
 * One process's share of a limit that each process counts for itself. Connections are distributed in turn, so an
 * address has about the same number in each process. Four standard deviations are added, so that clients within the
 * limit are not refused.
 */
export function shareOf(
  limit: number,
  { role, workers }: Pick<WorkerSettings, "role" | "workers">,
): number {
  if (role !== "accepting") return limit;
  const mean = limit / workers;
  return Math.min(limit, Math.ceil(mean + 4 * Math.sqrt(mean)));
}

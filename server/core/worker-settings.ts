/** How many processes serve, what each is for, and what each may hold of what they share. */
import { availableParallelism, totalmem } from "node:os";

/**
 * `whole`: everything in one process. Where there are several, `accepting` ones answer requests, and one has the `lanes`:
 * it alone sends transactions, runs the jobs and reconciles, and it listens on no port.
 */
export type Role = "whole" | "accepting" | "lanes";

export interface WorkerSettings {
  /** Accepting processes; with 1 there is one process for everything. */
  workers: number;
  role: Role;
  /** What this process is called in the log, where there are several. */
  worker: string | undefined;
}

const MAX_WORKERS = 256;
/** What one process may come to hold under load. */
const MEMORY_EACH = 256 * 2 ** 20;

/** As many as there are cores, and fewer where the container's memory is for fewer: one more has the lanes. */
export const workersFor = ({ cores, memory }: { cores: number; memory: number }): number =>
  Math.max(1, Math.min(cores, Math.floor(memory / MEMORY_EACH) - 1, MAX_WORKERS));

/** Of this machine, or of the part of it we are given. */
export function usualWorkers(): number {
  const given = process.constrainedMemory();
  const memory = given > 0 ? Math.min(given, totalmem()) : totalmem();
  return workersFor({ cores: availableParallelism(), memory });
}

/** Production uses the cores it is given; on one's own machine one process is easier to live with. */
export function readWorkers(
  environment: Record<string, string | undefined>,
  { isLocal, usual }: { isLocal: boolean; usual: number },
  problems: string[],
): WorkerSettings {
  const text = environment["WORKERS"] || String(isLocal ? 1 : usual);
  const workers = /^[0-9]{1,3}$/.test(text) ? Number(text) : 0;
  if (workers < 1 || workers > MAX_WORKERS)
    problems.push(`WORKERS must be the number of accepting processes, from 1 to ${MAX_WORKERS}`);
  return { workers, role: "whole", worker: undefined };
}

export interface Connections {
  /** A person's clicks, agents' requests and the engine do not take each other's. */
  money: number;
  prisma: number;
  engine: number;
}

const WHOLE: Connections = { money: 16, prisma: 10, engine: 10 };
/** Fewer and a burst waits for its turn at the pool instead of at the database. */
const LEAST: Connections = { money: 4, prisma: 3, engine: 2 };
const OF_THE_LANES: Connections = { money: 4, prisma: 4, engine: 10 };

/** The accepting ones share what one process would have; the engine of such a one only accepts and looks up. */
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

/** Jobs: 11 where they run. Listening: two a process. */
const JOBS = 11;
const LISTENERS = 2;

/** The most that all processes of one command open. */
export function connectionsInAll({ workers }: Pick<WorkerSettings, "workers">): number {
  const each = (role: Role): number =>
    Object.values(connectionsOf({ role, workers })).reduce((sum, count) => sum + count, LISTENERS);
  return workers === 1 ? each("whole") + JOBS : workers * each("accepting") + each("lanes") + JOBS;
}

/**
 * Of a limit that each process counts for itself: connections are handed out in turn, so that one address has about as
 * many here as elsewhere; four times the usual deviation is left, so that nobody is cut who keeps to the limit.
 */
export function shareOf(
  limit: number,
  { role, workers }: Pick<WorkerSettings, "role" | "workers">,
): number {
  if (role !== "accepting") return limit;
  const mean = limit / workers;
  return Math.min(limit, Math.ceil(mean + 4 * Math.sqrt(mean)));
}

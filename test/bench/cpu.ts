// What processes have used of a processor, as Linux tells it; nothing elsewhere.
import { readdirSync, readFileSync } from "node:fs";
import type { Pool } from "../../server/infra/db/pool.ts";

const TICKS_PER_SECOND = 100;

interface Stat {
  parent: number;
  /** Its own and that of the children it has buried. */
  ms: number;
}

function statOf(pid: number): Stat | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name stands in brackets, and may hold spaces.
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    const ticks = [11, 12, 13, 14].reduce((sum, at) => sum + Number(fields[at]), 0);
    return { parent: Number(fields[1]), ms: (ticks / TICKS_PER_SECOND) * 1000 };
  } catch {
    return undefined;
  }
}

export const cpuMsOf = (pids: readonly number[]): number =>
  pids.reduce((sum, pid) => sum + (statOf(pid)?.ms ?? Number.NaN), 0);

/** Postgres, with all its backends: those that ended count in their parent. */
export async function databaseCpuMs(pool: Pool): Promise<number> {
  const { rows } = await pool.query<{ folder: string }>(
    "SELECT setting AS folder FROM pg_settings WHERE name = 'data_directory'",
  );
  const postmaster = Number(
    readFileSync(`${rows[0]?.folder}/postmaster.pid`, "utf8").split("\n", 1)[0],
  );
  const pids = readdirSync("/proc").map(Number).filter(Boolean);
  const family = pids.filter((pid) => pid === postmaster || statOf(pid)?.parent === postmaster);
  return cpuMsOf(family);
}

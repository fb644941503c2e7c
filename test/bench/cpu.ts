// CPU time and memory of processes, as Linux reports them; unavailable on other systems.
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  writeFileSync,
} from "node:fs";
import type { Pool } from "../../server/infra/db/pool.ts";

const TICKS_PER_SECOND = 100;

interface Stat {
  parent: number;
  /** The CPU time of the process and of its reaped children. */
  ms: number;
}

function statOf(pid: number): Stat | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name is in parentheses and may contain spaces.
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    const ticks = [11, 12, 13, 14].reduce((sum, at) => sum + Number(fields[at]), 0);
    return { parent: Number(fields[1]), ms: (ticks / TICKS_PER_SECOND) * 1000 };
  } catch {
    return undefined;
  }
}

export const cpuMsOf = (pids: readonly number[]): number =>
  pids.reduce((sum, pid) => sum + (statOf(pid)?.ms ?? Number.NaN), 0);

/** The process ids of the process and all its descendants. */
export function familyOf(pid: number): number[] {
  const children = new Map<number, number[]>();
  for (const one of readdirSync("/proc").map(Number).filter(Boolean)) {
    const parent = statOf(one)?.parent;
    if (parent !== undefined) children.set(parent, [...(children.get(parent) ?? []), one]);
  }
  const family = [pid];
  for (const member of family) family.push(...(children.get(member) ?? []));
  return family;
}

/** Memory that processes share is divided equally among them (PSS). */
export function memoryMiBOf(pids: readonly number[]): number {
  const kib = pids.map((pid) => {
    const [, pss] = /^Pss:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, "utf8")) ?? [];
    return Number(pss);
  });
  return kib.reduce((sum, each) => sum + each, 0) / 1024;
}

/** Postgres and its backends. */
export async function databaseProcesses(pool: Pool): Promise<number[]> {
  const { rows } = await pool.query<{ folder: string }>(
    "SELECT setting AS folder FROM pg_settings WHERE name = 'data_directory'",
  );
  return familyOf(
    Number(readFileSync(`${rows[0]?.folder}/postmaster.pid`, "utf8").split("\n", 1)[0]),
  );
}

/** The CPU time of Postgres with all its backends; ended backends are counted in their parent. */
export const databaseCpuMs = async (pool: Pool): Promise<number> =>
  cpuMsOf(await databaseProcesses(pool));

/** Half of the default period; with a much shorter one, quotas are kept less exactly. */
const PERIOD_US = 50_000;
const [V1, V2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];

/**
 * Limits each process to this share of a CPU, in its own control group. Returns a function that removes the
 * limits.
 */
export function confine(pids: readonly number[], share: number): () => void {
  const isV1 = existsSync(`${V1}/cpu.cfs_quota_us`);
  const root = isV1 ? V1 : V2;
  const quotaUs = String(PERIOD_US * share);
  const closers: (() => void)[] = [];
  const letGo = (): void => closers.splice(0).forEach((close) => close());
  try {
    for (const pid of pids) {
      const group = `${root}/purser-bench-${pid}`;
      mkdirSync(group);
      closers.push(() => {
        writeFileSync(`${root}/cgroup.procs`, String(pid));
        rmdirSync(group);
      });
      if (isV1) {
        writeFileSync(`${group}/cpu.cfs_period_us`, String(PERIOD_US));
        writeFileSync(`${group}/cpu.cfs_quota_us`, quotaUs);
      } else writeFileSync(`${group}/cpu.max`, `${quotaUs} ${PERIOD_US}`);
      writeFileSync(`${group}/cgroup.procs`, String(pid));
    }
  } catch (cause) {
    letGo();
    throw new Error("this environment does not allow limiting the CPU of a process", { cause });
  }
  return letGo;
}

// What processes have used of a processor and hold of memory, as Linux tells it; nothing elsewhere.
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

/** The process, its children and theirs. */
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

/** Shared pages count once for all who share them, in equal parts. */
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

/** Of Postgres, with all its backends: those that ended count in their parent. */
export const databaseCpuMs = async (pool: Pool): Promise<number> =>
  cpuMsOf(await databaseProcesses(pool));

/** Half of what is usual; much shorter, and the shares are kept to badly. */
const PERIOD_US = 50_000;
const [V1, V2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];

/** Each of them gets no more than this share of a processor, in a control group of its own, until it is let go. */
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
    throw new Error("nobody is let confine a process to a part of a processor here", { cause });
  }
  return letGo;
}

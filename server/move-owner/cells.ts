/** The two cells of a move: their settings, databases and master keys. */
import type { Pool } from "pg";
import { ConfigError, loadConfig, type Config } from "../config.ts";
import { createPool, TIMEOUTS } from "../infra/db/pool.ts";
import { KeyRing } from "../plugins/custody/envelope.ts";

type Environment = Readonly<Record<string, string | undefined>>;

export interface Side {
  cell: string;
  config: Config;
  pool: Pool;
  ring: KeyRing;
}

export interface Move {
  from: Side;
  to: Side;
}

/** Settings that differ between cells: the new cell's are read only from those that begin with TO_. */
const OWN = [
  "DATABASE_URL",
  "DATABASE_DIRECT_URL",
  "DATABASE_READ_URL",
  "MASTER_KEYS",
  "MASTER_KEY_ACTIVE",
  "CELL",
  "PUBLIC_URL",
];
const NEEDED = ["TO_DATABASE_URL", "TO_MASTER_KEYS", "TO_CELL", "TO_PUBLIC_URL"];

const isAmong = (names: readonly string[], key: string): boolean =>
  names.includes(key.replace(/_FILE$/, ""));

/** The old cell's settings with every `TO_` setting in the place of its own. */
export function settingsOfNewCell(environment: Environment): Environment {
  const entries = Object.entries(environment);
  const given = entries.flatMap(([key, value]) =>
    key.startsWith("TO_") && value ? [[key.slice(3), value] as const] : [],
  );
  const missing = NEEDED.filter((key) => !environment[key] && !environment[`${key}_FILE`]);
  if (missing.length > 0)
    throw new ConfigError(
      missing.map((key) => `${key} is missing: the new cell's ${key.slice(3)}`),
    );
  const replaced = [...OWN, ...given.map(([key]) => key.replace(/_FILE$/, ""))];
  const kept = entries.filter(([key]) => !key.startsWith("TO_") && !isAmong(replaced, key));
  return Object.fromEntries([...kept, ...given]);
}

export function openCells(environment: Environment): Move {
  // With a custody process this command gets the master keys, and does not ask it.
  const { CUSTODY_SOCKET: _socket, ...own } = environment;
  const from = loadConfig(
    Object.fromEntries(Object.entries(own).filter(([key]) => !key.startsWith("TO_"))),
  );
  const to = loadConfig(settingsOfNewCell(own));
  const problems = [
    ...problemsOf(from, "this cell"),
    ...problemsOf(to, "the new cell"),
    ...(from.cells && from.cells.self === to.cells?.self ? ["TO_CELL is this cell"] : []),
  ];
  if (problems.length > 0) throw new ConfigError(problems);
  return { from: sideOf(from), to: sideOf(to) };
}

function problemsOf({ cells, databaseUrl, masterKeys }: Config, name: string): string[] {
  return [
    ...(cells === undefined ? [`${name} has no CELL, CELLS and CELL_SECRET`] : []),
    ...(databaseUrl === undefined ? [`${name} has no DATABASE_URL`] : []),
    ...(masterKeys.length === 0 ? [`${name} has no MASTER_KEYS`] : []),
  ];
}

/** Copying an owner with many payments takes minutes, in which one side waits for the other. Locks are held by requests. */
const LONG = { ...TIMEOUTS.none, lockMs: TIMEOUTS.jobs.lockMs };

const sideOf = (config: Config): Side => ({
  cell: config.cells?.self ?? "",
  config,
  pool: createPool(config.databaseUrl ?? "", {
    timeouts: LONG,
    maxConnections: 3,
    applicationName: "purser-move-owner",
  }),
  ring: new KeyRing(config.masterKeys, config.masterKeyActive),
});

export async function closeCells({ from, to }: Move): Promise<void> {
  for (const { pool, ring } of [from, to]) {
    await ring.close();
    await pool.end();
  }
}

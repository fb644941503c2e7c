/**
 * `npm run doctor -- --before-start`: what a start needs, without a running service and without changing anything. It
 * ends with 0 when the service can start, also with warnings, and with 1 when something is wrong.
 */
import { statfs } from "node:fs/promises";
import {
  ConfigError,
  keysWithoutEffect,
  loadConfig,
  type Config,
  type Environment,
} from "../config.ts";
import { isLoopbackHost } from "../core/client-address.ts";
import { urlsOfHosts } from "../core/database-settings.ts";
import { connectionsInAll } from "../core/worker-settings.ts";
import type { Pool } from "../infra/db/pool.ts";
import { checkDatabase, UnfitDatabase } from "../infra/db/settings.ts";
import { hideConfigured } from "../infra/telemetry.ts";
import { checkChain } from "./chain.ts";
import {
  clock,
  durability,
  firstStart,
  isUnused,
  migrations,
  openReadOnly,
  version,
  type Database,
} from "./database.ts";
import { found, ok, warning, wrong, type Finding } from "./finding.ts";
import { checkAddress, checkNode, checkPort, checkWebBuild } from "./machine.ts";
import { checkRelayers } from "./relayers.ts";
import { checkScreening } from "./screening.ts";
import { checkKeys, checkMail } from "./service.ts";

const AGAIN = "Fix the reason and run the doctor again.";
const OF_DATABASE = "See the lines about the database.";

export async function examineBeforeStart(environment: Environment): Promise<Finding[]> {
  const machine = [checkNode(), checkWebBuild()];
  let config;
  try {
    config = loadConfig(environment);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const todo = "See docs/reference/configuration.md for every key.";
    return [...error.problems.map((problem) => wrong("configuration", problem, todo)), ...machine];
  }
  const hide = hideConfigured(config);
  const findings = [
    ok("configuration", `valid, mode ${config.mode}`),
    ...keysWithoutEffect(environment).map((note) =>
      warning("configuration", note, "Remove the key.", "configuration_key_unread"),
    ),
    ...machine,
    await checkPort(config),
    ...(await ofDeployment(config)),
  ];
  // Findings may contain raw errors of libraries, so secrets are removed.
  return findings.map((finding) => ({ ...finding, says: hide(finding.says) }));
}

/** Local mode starts its own database and chain, so there is nothing more to look at. */
async function ofDeployment(config: Config): Promise<Finding[]> {
  const { databaseUrl, networks } = config;
  if (databaseUrl === undefined) return [];
  const database = openReadOnly(databaseUrl);
  try {
    const isReached = await isUnused(database).then(
      (isFirstStart) => ({ isFirstStart }),
      () => undefined,
    );
    const options = isReached ?? { isFirstStart: true };
    const all = await Promise.all([
      databaseFindings(database, config, options.isFirstStart),
      found("keys", () => checkKeys(database, config, options), { todo: OF_DATABASE }),
      found("relayers", () => checkRelayers(database, config, options), { todo: OF_DATABASE }),
      ...networks.map((network) => checkChain(network)),
      checkAddress(config),
      checkMail(config),
      checkScreening(config),
    ]);
    return all.flat();
  } finally {
    await database.close();
  }
}

async function databaseFindings(
  { pool }: Database,
  config: Config,
  isFirstStart: boolean,
): Promise<Finding[]> {
  const look = (check: string, run: () => Promise<Finding | Finding[]>) =>
    found(check, run, { todo: AGAIN });
  const reached = await found("database", () => version(pool), {
    todo: "Check that DATABASE_URL is right and that Postgres is running.",
    code: "database_unreachable",
  });
  if (reached.some(({ level }) => level === "wrong")) return reached;
  const all = await Promise.all([
    look("database sessions", () => sessions(config)),
    look("database durability", () => durability(pool)),
    look("database clock", () => clock(pool)),
    look("database connections", () => connections(pool, config)),
    look("database disk", () => disk(pool, config.databaseUrl ?? "")),
    ...(isFirstStart
      ? [look("database tables", () => firstStart(pool))]
      : [
          look("database migrations", () => migrations(pool, { isBeforeStart: true })),
          look("database tables", () => rights(pool)),
        ]),
  ]);
  return [...reached, ...all.flat()];
}

/** The same refusals as at the start: a pooler where sessions are needed, or a role without the settings behind one. */
async function sessions(config: Config): Promise<Finding> {
  const check = "database sessions";
  try {
    await checkDatabase(config);
    return ok(check, "keep their settings");
  } catch (error) {
    if (!(error instanceof UnfitDatabase)) throw error;
    return wrong(check, error.message, "See docs/operations/pooler.md.");
  }
}

async function connections(pool: Pool, { workers }: Config): Promise<Finding> {
  const check = "database connections";
  // SQL: settings of the server, and the connections of others. Those reserved for superusers are not for us.
  const { rows } = await pool.query<{ most: number; others: number }>(
    `SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS most,
            (SELECT count(*)::int FROM pg_stat_activity
              WHERE backend_type = 'client backend' AND application_name NOT LIKE 'purser%') AS others`,
  );
  const { most = 0, others = 0 } = rows[0] ?? {};
  const wanted = connectionsInAll({ workers });
  const todo =
    "Raise max_connections, set a smaller WORKERS, or put a pooler in front (DATABASE_DIRECT_URL).";
  const says = `this service opens up to ${wanted} (WORKERS=${workers}); the database allows ${most}`;
  if (wanted > most) return wrong(check, says, todo);
  return wanted + others > most
    ? warning(check, `${says}, and others hold ${others}`, todo)
    : ok(check, says);
}

const GIB = 2 ** 30;

/** Only where the database is on this machine and its role may see the folder. */
async function disk(pool: Pool, databaseUrl: string): Promise<Finding[]> {
  const isHere = urlsOfHosts(databaseUrl).every(
    (url) => URL.canParse(url) && isLoopbackHost(new URL(url).hostname),
  );
  if (!isHere) return [];
  // SQL: a setting that only some roles may see.
  const { rows } = await pool
    .query<{ folder: string }>("SELECT current_setting('data_directory') AS folder")
    .catch(() => ({ rows: [] }));
  const [row] = rows;
  const space = row && (await statfs(row.folder).catch(() => undefined));
  return space ? [ofSpace(space.bavail * space.bsize)] : [];
}

export function ofSpace(freeBytes: number): Finding {
  const check = "database disk";
  const says = `${(freeBytes / GIB).toFixed(1)} GiB are free`;
  const todo = "Make room: a database whose disk is full confirms no payment.";
  if (freeBytes < GIB) return wrong(check, says, todo);
  return freeBytes < 5 * GIB ? warning(check, says, todo) : ok(check, says);
}

/** Tables that another role made. */
async function rights(pool: Pool): Promise<Finding> {
  const check = "database tables";
  // SQL: the catalogue. The start changes tables, so their owner must be this role, or one that it belongs to.
  const { rows } = await pool.query<{ role: string; others: number; name: string | null }>(
    `SELECT current_user AS role, count(*)::int AS others, min(tablename) AS name FROM pg_tables
      WHERE schemaname = current_schema() AND NOT pg_has_role(current_user, tableowner, 'USAGE')`,
  );
  const { role = "?", others = 0, name = "" } = rows[0] ?? {};
  return others === 0
    ? ok(check, `belong to ${role}`)
    : wrong(
        check,
        `${others} tables, ${name ?? ""} among them, do not belong to the role ${role}`,
        `Use their owner in DATABASE_URL, or GRANT it to ${role}.`,
        "database_rights",
      );
}

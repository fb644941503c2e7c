/** Runs the doctor's checks with the configuration of a replica, and changes nothing. */
import { ConfigError, loadConfig, type Config, type Environment } from "../config.ts";
import { hideConfigured } from "../infra/telemetry.ts";
import { checkChain } from "./chain.ts";
import { checkDatabase, isUnused, openReadOnly } from "./database.ts";
import { checkRelayers } from "./relayers.ts";
import { found, ok, wrong, type Finding } from "./finding.ts";
import { checkScreening } from "./screening.ts";
import { checkKeys, checkMail, checkPublicUrl, checkTraces } from "./service.ts";

/** The groups of checks for `--only`. */
export const AREAS = [
  "database",
  "keys",
  "relayers",
  "chains",
  "url",
  "mail",
  "traces",
  "screening",
] as const;
export type Area = (typeof AREAS)[number];

export async function examine(
  environment: Environment,
  only: readonly Area[] = AREAS,
): Promise<Finding[]> {
  let config;
  try {
    config = loadConfig(environment);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const todo = "The server would not start. See docs/reference/configuration.md for every key.";
    return error.problems.map((problem) => wrong("configuration", problem, todo));
  }
  if (config.databaseUrl === undefined)
    return [
      wrong(
        "configuration",
        "everything is embedded, so there is no deployment to check",
        "Run it with the environment of a replica (DATABASE_URL, RPC_URL_<chainId>, ...).",
      ),
    ];
  const findings = await examineWith({ ...config, databaseUrl: config.databaseUrl }, only);
  return [ok("configuration", `valid, mode ${config.mode}`), ...findings];
}

/** The same with a configuration that is read already, for the operators' page. */
export async function examineWith(
  config: Config & { databaseUrl: string },
  only: readonly Area[],
): Promise<Finding[]> {
  const database = openReadOnly(config.databaseUrl);
  const { networks } = config;
  // A database that does not respond is reported by its own check.
  const isFirstStart = await isUnused(database).catch(() => false);
  const options = { isFirstStart };
  const looks: Record<Area, () => Promise<Finding[]>> = {
    database: () => checkDatabase(database, config, options),
    keys: () => checkKeys(database, config, options),
    relayers: () => checkRelayers(database, config, options),
    chains: async () => (await Promise.all(networks.map((network) => checkChain(network)))).flat(),
    url: () => checkPublicUrl(config, options),
    mail: () => checkMail(config),
    traces: () => checkTraces(config),
    screening: () => checkScreening(config),
  };
  const hide = hideConfigured(config);
  try {
    const findings = await Promise.all(
      AREAS.filter((area) => only.includes(area)).map((area) =>
        found(area, looks[area], { todo: "See the lines about the database." }),
      ),
    );
    // Findings may contain raw errors of libraries, so secrets are removed.
    return findings.flat().map((finding) => ({ ...finding, says: hide(finding.says) }));
  } finally {
    await database.close();
  }
}

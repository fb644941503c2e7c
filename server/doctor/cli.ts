/**
 * `npm run doctor`: checks a deployment with the same configuration as the server, and changes nothing. One line for
 * each check: ok, warning, or wrong with what to do. `--json` is for programs, `--only <area>` for some of the checks.
 * The exit code is 0 if all is well, 1 with warnings, 2 if something is wrong. `--before-start` checks what a start
 * needs (before-start.ts).
 */
import { parseArgs } from "node:util";
import { ConfigError, loadConfig, type Environment } from "../config.ts";
import { hideConfigured } from "../infra/telemetry.ts";
import { examineBeforeStart } from "./before-start.ts";
import { checkChain } from "./chain.ts";
import { checkDatabase, isUnused, openReadOnly } from "./database.ts";
import { checkRelayers } from "./relayers.ts";
import { exitCodeOf, found, linesOf, ok, wrong, type Finding } from "./finding.ts";
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
    const all = [ok("configuration", `valid, mode ${config.mode}`), ...findings.flat()];
    // Findings may contain raw errors of libraries, so secrets are removed.
    return all.map((finding) => ({ ...finding, says: hide(finding.says) }));
  } finally {
    await database.close();
  }
}

// Run only as a program, not when a test imports it. realpath, because a symlink in the path must not turn the program
// into a no-op.
if (import.meta.url === pathToFileURL(realpathSync(process.argv[1] ?? ".")).href) {
  const { values } = parseArgs({
    options: {
      "before-start": { type: "boolean" },
      json: { type: "boolean" },
      only: { type: "string", multiple: true },
    },
  });
  const isBeforeStart = values["before-start"] === true;
  if (isBeforeStart && values.only) {
    console.error("--before-start has no areas: leave out --only");
    process.exit(2);
  }
  const unknown = values.only?.filter((area) => !AREAS.some((known) => known === area)) ?? [];
  if (unknown.length > 0) {
    console.error(`There is no area "${unknown.join('", "')}". Choose from ${AREAS.join(", ")}`);
    process.exit(2);
  }
  const only = AREAS.filter((area) => values.only?.includes(area) ?? true);
  const findings = isBeforeStart
    ? await examineBeforeStart(process.env)
    : await examine(process.env, only);
  if (values.json) console.log(JSON.stringify(findings, null, 2));
  else for (const finding of findings) for (const line of linesOf(finding)) console.log(line);
  process.exitCode = isBeforeStart
    ? Number(findings.some(({ level }) => level === "wrong"))
    : exitCodeOf(findings);
import { AREAS, examine } from "./examine.ts";
import { exitCodeOf, linesOf } from "./finding.ts";

const { values } = parseArgs({
  options: { json: { type: "boolean" }, only: { type: "string", multiple: true } },
});
const unknown = values.only?.filter((area) => !AREAS.some((known) => known === area)) ?? [];
if (unknown.length > 0) {
  console.error(`There is no area "${unknown.join('", "')}". Choose from ${AREAS.join(", ")}`);
  process.exit(2);
}
const only = AREAS.filter((area) => values.only?.includes(area) ?? true);
const findings = await examine(process.env, only);
if (values.json) console.log(JSON.stringify(findings, null, 2));
else for (const finding of findings) for (const line of linesOf(finding)) console.log(line);
process.exitCode = exitCodeOf(findings);

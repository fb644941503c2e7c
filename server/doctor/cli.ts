/**
 * `npm run doctor`: looks at a deployment by the same configuration as the server, and changes nothing.
 *
 * One line for each check: ok, warning, or wrong with what to do. `--json` for programs. Ends with 0 where all is well, 1 with
 * warnings, 2 where something is wrong.
 */
import { realpathSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { ConfigError, loadConfig } from "../config.ts";
import { hideConfigured } from "../infra/telemetry.ts";
import { checkChain } from "./chain.ts";
import { checkDatabase, openReadOnly } from "./database.ts";
import { exitCodeOf, found, linesOf, ok, wrong, type Finding } from "./finding.ts";
import { checkKeys, checkMail, checkPublicUrl, checkRelayers, checkTraces } from "./service.ts";

type Environment = Record<string, string | undefined>;

export async function examine(environment: Environment): Promise<Finding[]> {
  let config;
  try {
    config = loadConfig(environment);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return error.problems.map((problem) =>
      wrong(
        "configuration",
        problem,
        "The server would not start; the README's table has every key.",
      ),
    );
  }
  if (config.databaseUrl === undefined)
    return [
      wrong(
        "configuration",
        "everything is embedded: there is no deployment to look at",
        "Run it with the environment of a replica (DATABASE_URL, RPC_URL_<chainId>, ...).",
      ),
    ];
  const database = openReadOnly(config.databaseUrl);
  const hide = hideConfigured(config);
  try {
    const [stored, ...others] = await Promise.all([
      checkDatabase(database, config),
      ...config.networks.map((network) => checkChain(network)),
      checkPublicUrl(config),
      checkMail(environment["SMTP_URL"]),
      checkTraces(config),
    ]);
    const isThere = stored.length > 1;
    const kept = isThere
      ? [
          ...(await checkKeys(database, config)),
          ...(await found("relayers", () => checkRelayers(database, config), {
            todo: "See the lines about the database.",
          })),
        ]
      : [];
    const findings = [
      ok("configuration", `${config.mode}, as the server reads it`),
      ...stored,
      ...kept,
      ...others.flat(),
    ];
    // Errors of libraries are told here as they come.
    return findings.map((finding) => ({ ...finding, says: hide(finding.says) }));
  } finally {
    await database.close();
  }
}

// Imported by a test it only lends its functions. A link in the path must not make it do nothing.
if (import.meta.url === pathToFileURL(realpathSync(process.argv[1] ?? ".")).href) {
  const { values } = parseArgs({ options: { json: { type: "boolean" } } });
  const findings = await examine(process.env);
  if (values.json) console.log(JSON.stringify(findings, null, 2));
  else for (const finding of findings) for (const line of linesOf(finding)) console.log(line);
  process.exitCode = exitCodeOf(findings);
}

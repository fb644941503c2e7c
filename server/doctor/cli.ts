/** `npm run doctor`: checks a deployment with the same configuration as the server, and changes nothing. */
import { readArguments, runAsProgram, UsageError } from "../infra/command-line.ts";
import { examineBeforeStart } from "./before-start.ts";
import { AREAS, examine } from "./examine.ts";
import { exitCodeOf, linesOf } from "./finding.ts";

const USAGE = `npm run doctor -- [--before-start] [--only <area>]... [--json]

Checks a deployment with the environment of a replica, and changes nothing. One line for each check, and what to do.
The exit code is 0 if all is well, 1 with warnings, 2 if something is wrong.

  --before-start   checks what a start needs; the exit code is 1 if it would fail, else 0
  --only <area>    only this area, may be given several times: ${AREAS.join(", ")}
  --json           for programs`;

async function main(): Promise<void> {
  const { values } = readArguments(process.argv.slice(2), USAGE, {
    "before-start": { type: "boolean" },
    json: { type: "boolean" },
    only: { type: "string", multiple: true },
  });
  const isBeforeStart = values["before-start"] === true;
  if (isBeforeStart && values.only)
    throw new UsageError("--before-start has no areas: leave out --only");
  const unknown = values.only?.filter((area) => !AREAS.some((known) => known === area)) ?? [];
  if (unknown.length > 0)
    throw new UsageError(
      `There is no area "${unknown.join('", "')}". Choose from ${AREAS.join(", ")}`,
    );
  const only = AREAS.filter((area) => values.only?.includes(area) ?? true);
  const findings = isBeforeStart
    ? await examineBeforeStart(process.env)
    : await examine(process.env, only);
  if (values.json) console.log(JSON.stringify(findings, null, 2));
  else for (const finding of findings) for (const line of linesOf(finding)) console.log(line);
  process.exitCode = isBeforeStart
    ? Number(findings.some(({ level }) => level === "wrong"))
    : exitCodeOf(findings);
}

await runAsProgram(import.meta.url, main, { ours: () => false, exitCode: 2 });

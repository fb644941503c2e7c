/**
 * `npm run doctor`: checks a deployment with the same configuration as the server, and changes nothing. One line for
 * each check: ok, warning, or wrong with what to do. `--json` is for programs, `--only <area>` for some of the checks.
 * The exit code is 0 if all is well, 1 with warnings, 2 if something is wrong. `--before-start` checks what a start
 * needs (before-start.ts).
 */
import { parseArgs } from "node:util";
import { examineBeforeStart } from "./before-start.ts";
import { AREAS, examine } from "./examine.ts";
import { exitCodeOf, linesOf } from "./finding.ts";

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

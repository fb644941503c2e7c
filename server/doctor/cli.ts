/**
 * `npm run doctor`: checks a deployment with the same configuration as the server, and changes nothing. One line for
 * each check: ok, warning, or wrong with what to do. `--json` is for programs, `--only <area>` for some of the checks.
 * The exit code is 0 if all is well, 1 with warnings, 2 if something is wrong.
 */
import { parseArgs } from "node:util";
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

// `npm run audit`: reports known advisories for the production dependencies. If the registry cannot be
// reached it reports that it did not run and exits without failure, but never as if it had passed.
import { spawnSync } from "node:child_process";
import { dirname } from "node:path";

const LEVELS = ["high", "critical"];
const npm = process.env.npm_execpath?.endsWith(".js")
  ? [process.execPath, process.env.npm_execpath]
  : ["npm"];
const [command = "npm", ...rest] = npm;
const { stdout } = spawnSync(
  command,
  [...rest, "audit", "--omit=dev", "--json", "--fetch-retries=0", "--fetch-timeout=20000"],
  { cwd: dirname(import.meta.dirname), encoding: "utf8", maxBuffer: 64 * 1024 * 1024 },
);

/** @returns {{ metadata?: { vulnerabilities: Record<string, number>, dependencies?: { prod: number } }, vulnerabilities?: Record<string, { severity: string, range: string }> }} */
function read() {
  try {
    return JSON.parse(stdout);
  } catch {
    return {};
  }
}

const { metadata, vulnerabilities = {} } = read();
if (metadata === undefined) {
  console.log(
    "AUDIT NOT RUN: the package registry gave no advisories (offline, or it has none to give).",
  );
} else {
  const found = Object.entries(vulnerabilities);
  for (const [name, { severity, range }] of found) console.log(`${severity}: ${name} ${range}`);
  const grave = found.filter(([, { severity }]) => LEVELS.includes(severity));
  console.log(
    `Audit: ${found.length} packages with advisories, ${grave.length} of them ${LEVELS.join(" or ")}.`,
  );
  if (grave.length > 0) process.exitCode = 1;
}

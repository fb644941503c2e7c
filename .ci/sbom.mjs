// `npm run sbom`: the contents of the production image in CycloneDX, from the lock file alone. `npm sbom
// --omit dev` would also leave out packages that production and a development tool share (viem, pg).
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";

const ROOT = dirname(import.meta.dirname);
/**
 * The local chain is not part of the image (server/image.mjs); the other packages are compiled in, or
 * installed beside the compiled code.
 */
const NOT_IN_THE_IMAGE = /^node_modules\/@foundry-rs\//;

const { packages } = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8"));
const shipped = new Set(
  Object.entries(packages)
    .filter(
      ([path, entry]) =>
        !entry.dev && !entry.link && path.includes("node_modules/") && !NOT_IN_THE_IMAGE.test(path),
    )
    .map(
      ([path, entry]) => `${path.slice(path.lastIndexOf("node_modules/") + 13)}@${entry.version}`,
    ),
);

const { status, stdout, stderr } = spawnSync(
  "npm",
  ["sbom", "--sbom-format", "cyclonedx", "--sbom-type", "application", "--package-lock-only"],
  { cwd: ROOT, encoding: "utf8", maxBuffer: 64 * 1024 * 1024 },
);
if (status !== 0) {
  console.error(stderr);
  process.exit(1);
}
const bill = JSON.parse(stdout);
const own = bill.metadata.component["bom-ref"];
bill.components = bill.components.filter((component) =>
  shipped.has(`${component.name}@${component.version}`),
);
const kept = new Set([own, ...bill.components.map((component) => component["bom-ref"])]);
bill.dependencies = bill.dependencies
  .filter(({ ref }) => kept.has(ref))
  .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((name) => kept.has(name)) }));
console.log(JSON.stringify(bill, undefined, 2));

// Builds the site beside the one that is there, and puts it in its place when it is whole: the service may be serving it.
import { existsSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { build } from "vitepress";
import { faultsOf, readPages } from "./check-pages.mjs";

const SITE = join(import.meta.dirname, ".vitepress", "dist");
const NEW = `${SITE}-${process.pid}.new`;
const OLD = `${SITE}-${process.pid}.old`;

const faults = faultsOf(readPages());
if (faults.length > 0) {
  console.error(faults.join("\n"));
  process.exit(1);
}
try {
  await build(import.meta.dirname, { outDir: NEW });
  if (existsSync(SITE)) renameSync(SITE, OLD);
  renameSync(NEW, SITE);
} finally {
  for (const folder of [NEW, OLD]) rmSync(folder, { recursive: true, force: true });
}

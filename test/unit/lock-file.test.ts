// Goal: `npm ci` accepts the lock file on every machine: each optional package that a locked package names has its own entry.
// npm refuses a lock file with missing entries, and does not add them on a machine that lacks the package.
import { readFileSync } from "node:fs";
import t from "tap";

interface LockedPackage {
  version?: string;
  optionalDependencies?: Record<string, string>;
}

t.test("every optional package is locked", async (t) => {
  const { packages } = JSON.parse(
    readFileSync(new URL("../../package-lock.json", import.meta.url), "utf8"),
  ) as { packages: Record<string, LockedPackage> };
  const named = Object.entries(packages).flatMap(([path, entry]) =>
    Object.keys(entry.optionalDependencies ?? {}).map((name) => ({ path, name })),
  );
  t.ok(named.length > 50, "there are optional packages to check");
  t.same(
    named.filter(({ path, name }) => !isLocked(packages, path, name)),
    [],
  );
});

/** As Node resolves it: beside the package, or in any folder above. */
function isLocked(packages: Record<string, LockedPackage>, from: string, name: string): boolean {
  for (let folder = from; ;) {
    if (packages[`${folder === "" ? "" : `${folder}/`}node_modules/${name}`]) return true;
    if (folder === "") return false;
    const above = folder.lastIndexOf("node_modules/");
    folder = above <= 0 ? "" : folder.slice(0, above - 1);
  }
}

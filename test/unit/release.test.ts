// Goal: a release has one version in all files, and its changes under its own heading.
import { cpSync, mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";
import {
  assertLater,
  datedChangelog,
  previousRelease,
  setVersions,
  VERSIONS,
} from "../../.ci/release.mjs";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
  version: string;
};

t.test("every file has the version of the service, and gets the next one", async (t) => {
  const copy = t.testdir();
  const files = [...Object.keys(VERSIONS), "package-lock.json"];
  for (const file of files) {
    mkdirSync(join(copy, dirname(file)), { recursive: true });
    cpSync(join(ROOT, file), join(copy, file));
  }
  setVersions(copy, version, "77.8.9");
  for (const file of files) t.match(readFileSync(join(copy, file), "utf8"), "77.8.9", file);
  const { packages } = JSON.parse(readFileSync(join(copy, "package-lock.json"), "utf8")) as {
    packages: Record<string, { version?: string }>;
  };
  t.same([packages[""]?.version, packages["packages/purser"]?.version], ["77.8.9", "77.8.9"]);
  t.not(packages["node_modules/viem"]?.version, "77.8.9");
  t.throws(() => setVersions(copy, version, "77.9.0"), /has no version/, "a second time");
});

t.test("a version is later than the one before", async (t) => {
  for (const later of ["0.1.1", "0.2.0", "1.0.0", "0.1.10"])
    t.doesNotThrow(() => assertLater("0.1.0", later), later);
  for (const other of ["0.1.0", "0.0.9", "0.1", "v0.2.0", "0.2.0-rc1", "00.2.0", "latest"])
    t.throws(() => assertLater("0.1.0", other), other);
  t.throws(() => assertLater("1.2.3", "1.1.9"));
});

t.test("the release before: the highest version in the history, but not this commit", async (t) => {
  const tags = [
    { name: "v0.9.0", commit: "a" },
    { name: "v0.10.0", commit: "b" },
    { name: "v0.2.1", commit: "c" },
    { name: "v0.11.0-rc1", commit: "d" },
    { name: "nightly", commit: "e" },
    { name: "", commit: "" },
  ];
  t.equal(previousRelease(tags, "f"), "b");
  t.equal(previousRelease(tags, "b"), "a", "the release itself serves beside the one before it");
  t.equal(previousRelease(tags.slice(3), "f"), undefined, "before the first release");
});

t.test("the changelog", async (t) => {
  const before =
    "# Changelog\n\n## Unreleased\n\n### Added\n\n- A.\n\n## 0.1.0 (2026-11-21)\n\n- B.\n";
  t.equal(
    datedChangelog(before, "0.2.0", "2026-12-01"),
    "# Changelog\n\n## Unreleased\n\n## 0.2.0 (2026-12-01)\n\n### Added\n\n- A.\n\n## 0.1.0 (2026-11-21)\n\n- B.\n",
  );
  const nothing = "# Changelog\n\n## Unreleased\n\n## 0.1.0 (2026-11-21)\n\n- B.\n";
  t.throws(() => datedChangelog(nothing, "0.2.0", "2026-12-01"), /says nothing/);
});

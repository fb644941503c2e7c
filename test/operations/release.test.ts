// Goal: a dry run of a release makes everything that a release publishes, from the commit alone, and changes nothing here.
// Tier: full (builds everything).
// Limit: 20 minutes.
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const git = (...args: string[]): string =>
  execFileSync("git", args, { cwd: ROOT, encoding: "utf8" }).trim();
const state = () => [git("rev-parse", "HEAD"), git("tag"), git("status", "--porcelain")];
const release = (...args: string[]) =>
  spawnSync("node", [".ci/release.mjs", ...args], { cwd: ROOT, encoding: "utf8" });
const engine = process.env["ENGINE"] ?? "docker";
const hasEngine = spawnSync(engine, ["info"], { stdio: "ignore" }).status === 0;
const hasPip = spawnSync("python3", ["-m", "pip", "--version"]).status === 0;
const VERSION = "77.8.9";

t.test(
  "a dry run",
  { skip: hasPip ? false : "the Python package needs python3 with pip" },
  async (t) => {
    const before = state();
    const out = join(t.testdir(), "out");
    const { status, stdout, stderr } = release(VERSION, "--dry-run", "--out", out);
    t.equal(status, 0, stderr);
    t.same(state(), before, "nothing changed here");
    const [, commit = ""] = new RegExp(`^v${VERSION} is ([0-9a-f]{40})$`, "m").exec(stdout) ?? [];

    const sums = readFileSync(join(out, "SHA256SUMS"), "utf8").trim().split("\n");
    const named = sums.map((line) => line.split("  ")[1]);
    const made = readdirSync(out).filter((name) => name !== "SHA256SUMS");
    t.same(new Set(named), new Set(made));
    for (const line of sums) {
      const [sum, name = ""] = line.split("  ");
      t.equal(
        createHash("sha256")
          .update(readFileSync(join(out, name)))
          .digest("hex"),
        sum,
        name,
      );
    }
    for (const name of [
      `purser-${VERSION}.tgz`,
      `purser-paywall-${VERSION}.tgz`,
      `purser_client-${VERSION}-py3-none-any.whl`,
      `purser-chart-${VERSION}.tgz`,
      `purser-service-${VERSION}.tar.gz`,
    ])
      t.ok(named.includes(name), name);

    await t.test("the image", { skip: hasEngine ? false : "no container engine" }, async (t) => {
      const file = `purser-image-${VERSION}.tar`;
      t.ok(named.includes(file));
      const manifest = execFileSync("tar", ["-xOf", join(out, file), "manifest.json"]);
      t.match(JSON.parse(manifest.toString()), [{ RepoTags: [`purser:${VERSION}`] }]);
      const kept = execFileSync(engine, ["image", "ls", "--quiet", `purser:${VERSION}`]);
      t.equal(kept.toString(), "", "a dry run leaves nothing in the engine");
    });

    const json = (name: string): unknown => JSON.parse(readFileSync(join(out, name), "utf8"));
    t.match(json(`purser-${VERSION}.provenance.json`), {
      predicate: { buildDefinition: { resolvedDependencies: [{ digest: { gitCommit: commit } }] } },
    });
    t.match(json(`purser-${VERSION}.cdx.json`), { metadata: { component: { version: VERSION } } });

    const read = (file: string): string =>
      execFileSync(
        "tar",
        [
          "-xzOf",
          join(out, `purser-service-${VERSION}.tar.gz`),
          `purser-service-${VERSION}/${file}`,
        ],
        { encoding: "utf8", maxBuffer: 64 * 1024 * 1024 },
      );
    t.match(JSON.parse(read("package.json")), { version: VERSION });
    const listed = execFileSync("tar", ["-tzf", join(out, `purser-service-${VERSION}.tar.gz`)], {
      encoding: "utf8",
    });
    const chunks = listed.split("\n").filter((name) => /server\/dist\/[^/]+\.js$/.test(name));
    t.ok(
      chunks.some((name) => read(name.slice(name.indexOf("/") + 1)).includes(commit)),
      "the service says from which commit it was built",
    );
  },
);

t.test("what cannot be released is refused, and nothing changes", async (t) => {
  const before = state();
  for (const args of [[], ["0.0.1"], ["next"]]) {
    const { status, stderr } = release(...args);
    t.equal(status, 1, args.join(" "));
    t.match(stderr, /^No release: /);
  }
  t.same(state(), before);
});

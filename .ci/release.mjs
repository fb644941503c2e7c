// `npm run release -- X.Y.Z [--dry-run] [--out FOLDER]`: one commit with the version everywhere and a dated section of the
// changelog, a tag, and what others install: packages, the compiled service, the image where a container engine runs, the
// SBOM, where it all was built from, and checksums. Nothing is pushed or published. A dry run does the same in a clone.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const CHECKOUT = fileURLToPath(new URL("../", import.meta.url));
/** Files with the version, and what is before it there. */
export const VERSIONS = {
  "package.json": '"version": "',
  "web/package.json": '"version": "',
  "docs/package.json": '"version": "',
  "packages/purser/package.json": '"version": "',
  "packages/paywall/package.json": '"version": "',
  "test/generators/package.json": '"version": "',
  "plugins/purser/plugin.json": '"version": "',
  "plugins/purser/gemini-extension.json": '"version": "',
  "plugins/purser/.claude-plugin/plugin.json": '"version": "',
  "plugins/purser/.codex-plugin/plugin.json": '"version": "',
  "packages/python/pyproject.toml": '\nversion = "',
  "ops/helm/purser/Chart.yaml": "\nversion: ",
  "server/Dockerfile": "\nARG VERSION=",
  "docs/tutorials/first-agent.md": "purser-",
};
const ALSO = { "ops/helm/purser/Chart.yaml": "\nappVersion: " };

/** @param {string} root @param {string} from @param {string} to */
export function setVersions(root, from, to) {
  for (const [file, before] of [...Object.entries(VERSIONS), ...Object.entries(ALSO)]) {
    const path = join(root, file);
    const text = readFileSync(path, "utf8");
    if (!text.includes(before + from)) throw new Error(`${file} has no version ${from}`);
    writeFileSync(path, text.replace(before + from, before + to));
  }
  const path = join(root, "package-lock.json");
  const lock = JSON.parse(readFileSync(path, "utf8"));
  lock.version = to;
  for (const [place, entry] of Object.entries(lock.packages))
    if (!place.includes("node_modules") && entry.version) entry.version = to;
  writeFileSync(path, `${JSON.stringify(lock, undefined, 2)}\n`);
}

/** The changelog after the release; what was unreleased is now of the version. @param {string} text @param {string} version @param {string} day */
export function datedChangelog(text, version, day) {
  const [, news = ""] = /^## Unreleased\n(.*?)(?=^## |$(?![\s\S]))/ms.exec(text) ?? [];
  if (!/^- /m.test(news)) throw new Error("CHANGELOG.md says nothing under Unreleased");
  return text.replace("## Unreleased\n", `## Unreleased\n\n## ${version} (${day})\n`);
}

/** Throws unless the second is a later version. @param {string} from @param {string} to */
export function assertLater(from, to) {
  if (!/^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$/.test(to))
    throw new Error(`${to} is not a version such as 1.2.3`);
  if (from.localeCompare(to, "en", { numeric: true }) >= 0)
    throw new Error(`${to} is not after ${from}`);
}

/**
 * The commit of the newest release in the history that is not this commit itself; undefined before the first one.
 * @param {readonly { name: string, commit: string }[]} tags @param {string} head
 */
export function previousRelease(tags, head) {
  const releases = tags
    .filter(({ name, commit }) => /^v\d+\.\d+\.\d+$/.test(name) && commit !== head)
    .toSorted((one, other) => other.name.localeCompare(one.name, "en", { numeric: true }));
  return releases[0]?.commit;
}

/** @param {string} root */
const commands = (root) => {
  /** @param {string} program @param {string[]} args @param {Record<string, string>} env */
  const run = (program, args, env = {}) => {
    const { status, stdout, stderr, error } = spawnSync(program, args, {
      cwd: root,
      encoding: "utf8",
      env: { ...process.env, ...env },
      maxBuffer: 64 * 1024 * 1024,
    });
    if (status !== 0)
      throw new Error(`${program} ${args.join(" ")} failed: ${error?.message ?? stderr + stdout}`);
    return stdout;
  };
  /** @param {string[]} args */
  const git = (...args) => run("git", args).trim();
  return { run, git };
};

/** @param {string} file */
const sha256 = (file) => createHash("sha256").update(readFileSync(file)).digest("hex");

/** The commit and the tag. @param {string} root @param {string} version @param {Date} now */
function mark(root, version, now) {
  const { run, git } = commands(root);
  const { version: from } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  assertLater(from, version);
  if (git("status", "--porcelain") !== "")
    throw new Error("the checkout has changes: commit them first");
  if (git("tag", "--list", `v${version}`) !== "") throw new Error(`there is a tag v${version}`);
  const changelog = join(root, "CHANGELOG.md");
  const dated = datedChangelog(
    readFileSync(changelog, "utf8"),
    version,
    now.toISOString().slice(0, 10),
  );
  setVersions(root, from, version);
  writeFileSync(changelog, dated);
  run("npm", ["run", "derive"]);
  git("add", "--update");
  git("commit", "--quiet", "-m", `release: ${version}`);
  git("tag", "--annotate", `v${version}`, "-m", `Purser ${version}`);
  return git("rev-parse", "HEAD");
}

/** Everything that others install. @param {string} root @param {string} out @param {string} version @param {Date} now */
function build(root, out, version, now) {
  const { run, git } = commands(root);
  const commit = git("rev-parse", "HEAD");
  const builtAt = now.toISOString();
  const env = {
    PURSER_COMMIT: commit,
    PURSER_BUILT_AT: builtAt,
    PRISMA_SCHEMA_ENGINE_BINARY: "/bin/true",
  };
  mkdirSync(out, { recursive: true });
  if (readdirSync(out).length > 0) throw new Error(`${out} is not empty`);

  run("npx", ["prisma", "generate", "--config", "prisma/prisma.config.ts"], env);
  run("node", ["server/build.mjs"], env);
  run("npm", ["run", "build", "--workspace", "web"], env);
  run("npm", ["run", "docs"], env);
  const service = `purser-service-${version}`;
  run("node", ["server/image.mjs", join(out, service)], env);
  const owner = ["--owner=0", "--group=0", "--numeric-owner", "--sort=name", `--mtime=${builtAt}`];
  run("tar", [...owner, "-czf", join(out, `${service}.tar.gz`), "-C", out, service]);
  rmSync(join(out, service), { recursive: true });

  run("npm", [
    "pack",
    "--workspace",
    "packages/purser",
    "--workspace",
    "packages/paywall",
    "--pack-destination",
    out,
  ]);
  run("python3", [
    "-m",
    "pip",
    "wheel",
    "--quiet",
    "--no-deps",
    "--wheel-dir",
    out,
    "packages/python",
  ]);
  run("tar", [
    ...owner,
    "-czf",
    join(out, `purser-chart-${version}.tgz`),
    "-C",
    "ops/helm",
    "purser",
  ]);
  writeFileSync(join(out, `purser-${version}.cdx.json`), run("npm", ["run", "--silent", "sbom"]));
  const image = buildImage(root, out, { version, commit, builtAt });

  const files = readdirSync(out).toSorted();
  const subject = files.map((name) => ({ name, digest: { sha256: sha256(join(out, name)) } }));
  const source = sourceOf(root);
  const provenance = `purser-${version}.provenance.json`;
  writeFileSync(
    join(out, provenance),
    `${JSON.stringify(provenanceOf({ source, subject, version, commit, builtAt, lock: sha256(join(root, "package-lock.json")) }), undefined, 2)}\n`,
  );
  const sums = [...files, provenance].map((name) => `${sha256(join(out, name))}  ${name}\n`);
  writeFileSync(join(out, "SHA256SUMS"), sums.join(""));
  return { files: [...files, provenance, "SHA256SUMS"], image };
}

/**
 * As a file, and in the engine. Returns its name, or undefined where no container engine runs.
 * @param {string} root @param {string} out @param {{ version: string, commit: string, builtAt: string }} of
 */
function buildImage(root, out, { version, commit, builtAt }) {
  const engine = engineName();
  if (spawnSync(engine, ["info"], { stdio: "ignore" }).status !== 0) return undefined;
  const { run } = commands(root);
  const name = `purser:${version}`;
  const labels = {
    COMMIT: commit,
    BUILT_AT: builtAt,
    VERSION: version,
    ...(process.env.NODE_IMAGE && { NODE_IMAGE: process.env.NODE_IMAGE }),
  };
  const args = Object.entries(labels).flatMap(([key, value]) => ["--build-arg", `${key}=${value}`]);
  run(engine, ["build", "-f", "server/Dockerfile", ...args, "-t", name, "."]);
  run(engine, ["save", "-o", join(out, `purser-image-${version}.tar`), name]);
  return name;
}

const engineName = () => process.env.ENGINE || "docker";

/** @param {string} root */
function sourceOf(root) {
  const { status, stdout } = spawnSync("git", ["remote", "get-url", "origin"], {
    cwd: root,
    encoding: "utf8",
  });
  return status === 0 ? stdout.trim().replace(/\.git$/, "") : "purser";
}

/**
 * An in-toto statement with SLSA's predicate: what was built, from what, by what. It is not signed.
 * @param {{ source: string, subject: object[], version: string, commit: string, builtAt: string, lock: string }} of
 */
function provenanceOf({ source, subject, version, commit, builtAt, lock }) {
  return {
    _type: "https://in-toto.io/Statement/v1",
    subject,
    predicateType: "https://slsa.dev/provenance/v1",
    predicate: {
      buildDefinition: {
        buildType: `${source}/release@v1`,
        externalParameters: { version },
        internalParameters: {
          node: process.version,
          platform: `${process.platform}-${process.arch}`,
        },
        resolvedDependencies: [
          { uri: `git+${source}@refs/tags/v${version}`, digest: { gitCommit: commit } },
          { name: "package-lock.json", digest: { sha256: lock } },
        ],
      },
      runDetails: {
        builder: { id: `${source}/release` },
        metadata: { startedOn: builtAt, finishedOn: new Date().toISOString() },
      },
    },
  };
}

/** A clone with the packages of this checkout. */
function cloneOf() {
  const folder = mkdtempSync(join(tmpdir(), "purser-release-"));
  const root = join(folder, "purser");
  commands(CHECKOUT).git("clone", "--quiet", "--no-hardlinks", CHECKOUT, root);
  const { git } = commands(root);
  for (const key of ["name", "email"]) git("config", `user.${key}`, "release");
  // .gitignore names folders, and these are links.
  writeFileSync(join(root, ".git", "info", "exclude"), "node_modules\n");
  for (const place of ["", "web", "docs", "packages/purser", "packages/paywall"]) {
    const packages = join(CHECKOUT, place, "node_modules");
    if (existsSync(packages)) symlinkSync(packages, join(root, place, "node_modules"));
  }
  return { root, remove: () => rmSync(folder, { recursive: true }) };
}

function main() {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { "dry-run": { type: "boolean" }, out: { type: "string" } },
  });
  const [version] = positionals;
  if (version === undefined) throw new Error("npm run release -- X.Y.Z [--dry-run] [--out FOLDER]");
  const out = resolve(values.out ?? join(".tmp", `release-${version}`));
  const now = new Date();
  const clone = values["dry-run"] ? cloneOf() : undefined;
  try {
    const root = clone?.root ?? CHECKOUT;
    const commit = mark(root, version, now);
    console.log(`v${version} is ${commit}`);
    const { files, image } = build(root, out, version, now);
    for (const name of files) console.log(`  ${name}`);
    console.log(image ? `image ${image}` : `no image: ${engineName()} has no engine that runs`);
    // A dry run leaves nothing in the engine.
    if (clone && image) commands(root).run(engineName(), ["rmi", image]);
    console.log(
      clone
        ? `A dry run: the commit and the tag were in a clone. The files are in ${out}`
        : `In ${out}. Next: docs/contributing/release.md`,
    );
  } finally {
    clone?.remove();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  try {
    main();
  } catch (error) {
    console.error(`No release: ${error instanceof Error ? error.message : String(error)}`);
    process.exitCode = 1;
  }

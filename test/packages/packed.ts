// The packages as users get them: packed, and installed into an empty project outside this repository.
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Test } from "tap";

export const ROOT = fileURLToPath(new URL("../../", import.meta.url));
export const PACKAGES = ["purser", "paywall"] as const;
export const run = promisify(execFile);

/** A user's environment, without the variables of npm and the test runner around this test. */
export const cleanEnvironment = (
  more: Record<string, string | undefined> = {},
): NodeJS.ProcessEnv => ({
  ...Object.fromEntries(
    Object.entries(process.env).filter(
      ([key]) =>
        key !== "NODE_OPTIONS" && !/^(_?TAP|PURSER_|AGENT_|npm_package|npm_lifecycle)/.test(key),
    ),
  ),
  ...more,
});

/** The files that `npm pack` would include, without packing, and the size of the tarball in bytes. */
export async function packedFiles(name: string): Promise<{ files: string[]; size: number }> {
  const { stdout } = await run("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
    cwd: join(ROOT, "packages", name),
    env: cleanEnvironment(),
    maxBuffer: 16 * 1024 * 1024,
  });
  const [packed] = JSON.parse(stdout) as { files: { path: string }[]; size: number }[];
  if (!packed) throw new Error("npm packed nothing");
  return { files: packed.files.map(({ path }) => path), size: packed.size };
}

/** An empty project with the tarballs, and the packages that a user would install beside them. */
export async function emptyProject(t: Test, others: string[]): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "purser-installed-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const options = { env: cleanEnvironment(), maxBuffer: 16 * 1024 * 1024 };
  // Packed as in the README, but without scripts, because a build would remove dist/ while other tests use
  // it.
  const workspaces = ["--workspace", "purser", "--workspace", "@purser/paywall"];
  const pack = ["pack", ...workspaces, "--ignore-scripts", "--pack-destination", folder];
  await run("npm", pack, { ...options, cwd: ROOT });
  const tarballs = readdirSync(folder).map((name) => `./${name}`);
  writeFileSync(join(folder, "package.json"), JSON.stringify({ name: "project", private: true }));
  const install = [
    "install",
    "--no-audit",
    "--no-fund",
    "--loglevel=error",
    ...tarballs,
    ...others,
  ];
  await run("npm", install, { ...options, cwd: folder });
  return folder;
}

export const versionHere = (name: string): string => {
  const manifest = JSON.parse(
    readFileSync(join(ROOT, "node_modules", name, "package.json"), "utf8"),
  ) as { version: string };
  return `${name}@${manifest.version}`;
};

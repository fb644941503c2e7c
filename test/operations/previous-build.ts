// The build before this one, compiled from the history: what an upgrade starts from, and a rollback returns to.
import { execFile, execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** The newest commit that is deployed somewhere. Each release sets it to the release before. */
export const PREVIOUS_COMMIT =
  process.env["PREVIOUS_COMMIT"] ?? "afd5d2bbc293ca13adbe24c9a8910b5101df3d10";

export function isInHistory(commit: string): boolean {
  try {
    execFileSync("git", ["cat-file", "-e", `${commit}^{commit}`], { cwd: ROOT, stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** Compiles it in a folder of its own, with this checkout's packages. Returns the folder. */
export async function compileCommit(
  t: { teardown(remove: () => void): unknown },
  commit: string,
): Promise<string> {
  mkdirSync(join(ROOT, ".tmp"), { recursive: true });
  const folder = mkdtempSync(join(ROOT, ".tmp", "previous-build-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  const archive = join(folder, "source.tar");
  execFileSync("git", ["archive", "--output", archive, commit], { cwd: ROOT });
  execFileSync("tar", ["-x", "-f", archive, "-C", folder]);
  const run = async (...args: string[]): Promise<void> => {
    await promisify(execFile)(process.execPath, args, {
      cwd: folder,
      env: { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: "/bin/true", CHECKPOINT_DISABLE: "1" },
    });
  };
  await run(join(ROOT, "node_modules", "prisma", "build", "index.js"), "generate");
  await run(join("server", "build.mjs"));
  const web = join(ROOT, "web", "dist");
  if (existsSync(web)) symlinkSync(web, join(folder, "web", "dist"));
  return folder;
}

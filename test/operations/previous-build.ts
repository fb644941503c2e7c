// The previous build, compiled from the repository's history: upgrades start from it, and rollbacks return to
// it.
import { execFile, execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/**
 * The newest commit that is deployed somewhere. Each release sets this to the release before, and adds a new version of the
 * policy document to RELEASED in test/unit/settings.test.ts.
 */
export const PREVIOUS_COMMIT = process.env["PREVIOUS_COMMIT"] ?? "985b9178";

export function isInHistory(commit: string): boolean {
  try {
    execFileSync("git", ["cat-file", "-e", `${commit}^{commit}`], { cwd: ROOT, stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/**
 * Compiles the commit in its own folder, with this checkout's packages, and caches it for the next run.
 * Returns the folder.
 */
export async function compileCommit(commit: string): Promise<string> {
  const madeWith = createHash("sha256")
    .update(`${process.version} ${process.platform} ${process.arch}\n`)
    .update(readFileSync(join(ROOT, "package-lock.json")))
    .digest("hex");
  const folder = join(ROOT, ".tmp", "previous-builds", `${commit}-${madeWith.slice(0, 16)}`);
  if (!existsSync(folder)) await compileInto(folder, commit);
  return folder;
}

/** Moved to its final place only when it is complete. */
async function compileInto(place: string, commit: string): Promise<void> {
  mkdirSync(join(place, ".."), { recursive: true });
  const folder = mkdtempSync(`${place}-`);
  try {
    const archive = join(folder, "source.tar");
    execFileSync("git", ["archive", "--output", archive, commit], { cwd: ROOT });
    execFileSync("tar", ["-x", "-f", archive, "-C", folder]);
    rmSync(archive);
    const run = async (...args: string[]): Promise<void> => {
      await promisify(execFile)(process.execPath, args, {
        cwd: folder,
        env: { ...process.env, PRISMA_SCHEMA_ENGINE_BINARY: "/bin/true", CHECKPOINT_DISABLE: "1" },
      });
    };
    await run(join(ROOT, "node_modules", "prisma", "build", "index.js"), "generate");
    await run(join("server", "build.mjs"));
    symlinkSync(join(ROOT, "web", "dist"), join(folder, "web", "dist"));
    renameSync(folder, place);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The part of `inject` that the owner helpers use, over HTTP. */
export function injector(url: string) {
  return {
    async inject(request: {
      method: string;
      url: string;
      headers?: Record<string, string>;
      payload?: string;
    }) {
      const answer = await fetch(url + request.url, {
        method: request.method,
        ...(request.headers && { headers: request.headers }),
        ...(request.payload !== undefined && { body: request.payload }),
      });
      const body = await answer.text();
      return {
        statusCode: answer.status,
        body,
        headers: { "set-cookie": answer.headers.getSetCookie() },
        json: () => JSON.parse(body) as unknown,
      };
    },
  };
}

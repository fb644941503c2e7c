// The previous build, compiled from the repository's history and packed as a release is: upgrades start from it, and
// rollbacks return to it.
import { execFile, execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Test } from "tap";
import { previousRelease } from "../../.ci/release.mjs";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
/** Before the first release: the newest commit that is deployed somewhere. */
const BEFORE_RELEASES = "fc3be82c";

const git = (...args: string[]): string =>
  execFileSync("git", args, { cwd: ROOT, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });

/** The last release in the history of what is checked out. */
function lastRelease(): string | undefined {
  try {
    // An annotated tag is an object of its own, with its commit behind it.
    const format = "--format=%(refname:short) %(objectname) %(*objectname)";
    const lines = git("tag", "--merged", "HEAD", format).split("\n");
    const tags = lines.map((line) => {
      const [name = "", object = "", commit] = line.split(" ");
      return { name, commit: commit || object };
    });
    return previousRelease(tags, git("rev-parse", "HEAD").trim());
  } catch {
    // No checkout: isInHistory says so too.
    return undefined;
  }
}

/** Each release adds a new version of the policy document to RELEASED in test/unit/settings.test.ts. */
export const PREVIOUS_COMMIT = process.env["PREVIOUS_COMMIT"] ?? lastRelease() ?? BEFORE_RELEASES;

export function isInHistory(commit: string): boolean {
  try {
    git("cat-file", "-e", `${commit}^{commit}`);
    return true;
  } catch {
    return false;
  }
}

/**
 * Compiles the commit with this checkout's packages, packs what its image has, and caches that for the next run.
 * Returns a copy outside this checkout, where nothing that is missing in it would be found.
 */
export async function compileCommit(t: Test, commit: string): Promise<string> {
  const madeWith = createHash("sha256")
    .update(`packed ${process.version} ${process.platform} ${process.arch}\n`)
    .update(readFileSync(join(ROOT, "package-lock.json")))
    .digest("hex");
  const cached = join(ROOT, ".tmp", "previous-builds", `${commit}-${madeWith.slice(0, 16)}`);
  if (!existsSync(cached)) await packInto(cached, commit);
  const folder = mkdtempSync(join(tmpdir(), "purser-previous-"));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  cpSync(cached, folder, { recursive: true });
  return folder;
}

/** Moved to its final place only when it is complete. */
async function packInto(place: string, commit: string): Promise<void> {
  mkdirSync(join(place, ".."), { recursive: true });
  const folder = mkdtempSync(`${place}-`);
  try {
    const source = join(folder, "source");
    const packed = join(folder, "packed");
    const archive = join(folder, "source.tar");
    mkdirSync(source);
    git("archive", "--output", archive, commit);
    execFileSync("tar", ["-x", "-f", archive, "-C", source]);
    symlinkSync(join(ROOT, "node_modules"), join(source, "node_modules"));
    const run = async (...args: string[]): Promise<void> => {
      await promisify(execFile)(process.execPath, args, {
        cwd: source,
        env: {
          ...process.env,
          PRISMA_SCHEMA_ENGINE_BINARY: "/bin/true",
          CHECKPOINT_DISABLE: "1",
          PURSER_COMMIT: commit,
        },
      });
    };
    await run(join("node_modules", "prisma", "build", "index.js"), "generate");
    await run(join("server", "build.mjs"));
    // No test opens a page of the previous build: compiling them would take longer than the rest.
    for (const pages of ["web/dist", "docs/.vitepress/dist"])
      mkdirSync(join(source, pages), { recursive: true });
    await run(join("server", "image.mjs"), packed);
    renameSync(packed, place);
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

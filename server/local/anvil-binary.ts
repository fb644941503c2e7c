// Finds anvil, the local chain's node: the npm package for this machine, one on PATH, or fetched once.
import { execFile, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { promisify } from "node:util";
import { StartError } from "./start-error.ts";

const VERSION = "1.7.1";
const ARCHITECTURES: Record<string, string> = { x64: "amd64", arm64: "arm64" };
const FETCH_WITHIN_MS = 180_000;

const packageName = (): string =>
  `@foundry-rs/anvil-${process.platform}-${ARCHITECTURES[process.arch] ?? process.arch}`;
const fileName = process.platform === "win32" ? "anvil.exe" : "anvil";

/** The binary, or undefined when it is neither installed with the dependencies nor on PATH. */
export function findAnvil(): string | undefined {
  try {
    const manifest = createRequire(import.meta.url).resolve(`${packageName()}/package.json`);
    const path = join(dirname(manifest), "bin", fileName);
    if (existsSync(path)) return path;
  } catch {
    // Not among the installed packages: the lock file holds the one for Linux on x64 only.
  }
  const onPath = spawnSync(fileName, ["--version"], { stdio: "ignore" });
  return onPath.status === 0 ? fileName : undefined;
}

export async function resolveAnvil(
  dataDir: string,
  onProgress: (line: string) => void,
): Promise<string> {
  const found = findAnvil();
  if (found !== undefined) return found;
  const tools = join(resolve(dataDir), "tools");
  const fetched = join(tools, "node_modules", packageName(), "bin", fileName);
  if (!existsSync(fetched)) {
    onProgress(`Fetching the local chain's node (${packageName()}, once)...`);
    await fetchPackage(tools);
  }
  if (existsSync(fetched)) return fetched;
  throw cannotRun("the package holds no binary");
}

/** Installed beside and renamed, so that a broken-off download is never taken for a whole one. */
async function fetchPackage(tools: string): Promise<void> {
  const building = `${tools}.new`;
  rmSync(building, { recursive: true, force: true });
  mkdirSync(building, { recursive: true });
  writeFileSync(join(building, "package.json"), '{"private":true}\n');
  try {
    await promisify(execFile)(
      "npm",
      ["install", "--no-audit", "--no-fund", "--ignore-scripts", `${packageName()}@${VERSION}`],
      { cwd: building, timeout: FETCH_WITHIN_MS },
    );
  } catch (error) {
    throw cannotRun(`it could not be fetched: ${firstLine(error)}`);
  }
  rmSync(tools, { recursive: true, force: true });
  renameSync(building, tools);
}

function cannotRun(reason: string): StartError {
  return new StartError(
    `the local chain needs anvil ${VERSION} (${packageName()}); ${reason}. ` +
      "Install Foundry so that `anvil` is on PATH, or set RPC_URL_5042002 to a chain of yours.",
  );
}

function firstLine(error: unknown): string {
  const said = (error as { stderr?: string }).stderr ?? String(error);
  return said.trim().split("\n")[0] ?? "unknown reason";
}

/** A Python virtual environment with packages, for tests against Python programs; or the reason why it is not available. */
import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const INSTALL_TIMEOUT_MS = 180_000;

interface Python {
  /** The interpreter; `bin` also contains the programs of the packages. */
  python: string;
  bin: string;
}

/**
 * For `t.skip(missing)`: without Python or without a package index the test is skipped with that reason.
 * Requirements are pinned (`mcp==2.3.0`), or paths of wheels.
 */
export async function pythonWith(
  requirements: readonly string[],
  onEnd: (clean: () => Promise<void>) => void,
): Promise<Python | { missing: string }> {
  const folder = await mkdtemp(join(tmpdir(), "purser-python-"));
  onEnd(() => rm(folder, { recursive: true, force: true }));
  const bin = join(folder, "bin");
  const python = join(bin, "python");
  try {
    await run("python3", ["-m", "venv", folder]);
  } catch {
    return { missing: "no python3 with venv on this machine" };
  }
  try {
    const install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    await run(python, [...install, ...requirements], { timeout: INSTALL_TIMEOUT_MS });
  } catch (error) {
    const { stderr } = error as { stderr?: string };
    return { missing: `pip could not install ${requirements.join(" ")}: ${lastLine(stderr)}` };
  }
  return { python, bin };
}

const lastLine = (text: string | undefined): string => text?.trim().split("\n").at(-1) ?? "";

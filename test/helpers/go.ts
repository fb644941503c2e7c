/** Go and its modules, for tests against Go programs; or the reason why it is not available. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);
const DOWNLOAD_TIMEOUT_MS = 300_000;

interface Go {
  /** Variables for its programs: where modules and compiled packages are kept. */
  env: Record<string, string>;
}

/** For `t.skip(missing)`. Each module is pinned (`example.com/module@v1.2.3`) and downloaded here. */
export async function goWith(modules: readonly string[]): Promise<Go | { missing: string }> {
  const names = ["GOMODCACHE", "GOCACHE", "GOPROXY", "GOSUMDB"];
  let env: Record<string, string>;
  try {
    const { stdout } = await run("go", ["env", "-json", ...names]);
    env = { ...(JSON.parse(stdout) as Record<string, string>), GOFLAGS: "-mod=mod" };
  } catch {
    return { missing: "no go on this machine" };
  }
  for (const name of modules) {
    try {
      const options = { env: { ...process.env, ...env }, timeout: DOWNLOAD_TIMEOUT_MS };
      await run("go", ["mod", "download", name], options);
    } catch (error) {
      const { stderr = "" } = error as { stderr?: string };
      return {
        missing: `go could not download ${name}: ${stderr.trim().split("\n").at(-1) ?? ""}`,
      };
    }
  }
  return { env };
}

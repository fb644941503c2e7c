// Compiles the test files and their imports before they run: compiling at import time would cost each of a
// hundred processes two seconds of CPU.
import { join, relative } from "node:path";
import { build as bundle } from "esbuild";
import { ROOT } from "../../server/local/bootstrap.mjs";
import { keepsItsPlace } from "./keeps-its-place.mjs";

/**
 * Files share a process (run-files.mjs): in a test file, `import t from "tap"` is that file's own subtest;
 * elsewhere it is the process's root test.
 * @type {import("esbuild").Plugin}
 */
const hasItsOwnTest = {
  name: "has-its-own-test",
  setup(build) {
    build.onResolve({ filter: /^tap$/ }, ({ importer, namespace }) =>
      namespace === "file" && importer.endsWith(".test.ts")
        ? { path: importer, namespace: "test-of-a-file" }
        : undefined,
    );
    build.onLoad({ filter: /./, namespace: "test-of-a-file" }, () => ({
      contents: 'import t from "tap"; export default globalThis.testOfThisFile ?? t;',
      resolveDir: ROOT,
    }));
  },
};

/**
 * @param {string[]} files relative to the repository
 * @param {string} outdir inside the repository, where packages are found
 * @param {{isSplit?: boolean, change?: (path: string, source: string) => string}} [options] `isSplit`: files share what
 *   they import, instead of a copy in each; `change`: of the sources
 * @returns {Promise<(file: string) => string>} where a file's compiled form is
 */
export async function compile(
  files,
  outdir,
  { isSplit = true, change = (_, source) => source } = {},
) {
  await bundle({
    absWorkingDir: ROOT,
    entryPoints: files,
    outdir,
    outbase: ROOT,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    splitting: isSplit,
    packages: "external",
    platform: "node",
    format: "esm",
    target: "node20",
    sourcemap: "linked",
    sourcesContent: false,
    logLevel: "error",
    plugins: [keepsItsPlace(change), hasItsOwnTest],
  });
  return (file) => relative(ROOT, join(outdir, file.replace(/\.ts$/, ".mjs")));
}

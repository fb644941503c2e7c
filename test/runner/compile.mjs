// Compiles the test files and their imports before they run: compiling at import time would cost each of a
// hundred processes two seconds of CPU.
import { readFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { build as bundle } from "esbuild";
import { ROOT } from "../../server/local/bootstrap.mjs";

/**
 * Keeps the source's own path in a compiled file, so that it finds the files beside its source.
 * @type {import("esbuild").Plugin}
 */
export const keepsItsPlace = {
  name: "keeps-its-place",
  setup(build) {
    build.onLoad({ filter: /\.(ts|mts|mjs)$/, namespace: "file" }, async ({ path }) => {
      const source = await readFile(path, "utf8");
      const loader = path.endsWith(".mjs") ? "js" : "ts";
      const contents = source
        .replaceAll("import.meta.url", JSON.stringify(pathToFileURL(path).href))
        .replaceAll("import.meta.dirname", JSON.stringify(join(path, "..")))
        .replaceAll("import.meta.filename", JSON.stringify(path));
      return { contents, loader };
    });
  },
};

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
 * @returns {Promise<(file: string) => string>} where a file's compiled form is
 */
export async function compile(files, outdir) {
  await bundle({
    absWorkingDir: ROOT,
    entryPoints: files,
    outdir,
    outbase: ROOT,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    splitting: true,
    packages: "external",
    platform: "node",
    format: "esm",
    target: "node20",
    sourcemap: "linked",
    sourcesContent: false,
    logLevel: "error",
    plugins: [keepsItsPlace, hasItsOwnTest],
  });
  return (file) => relative(ROOT, join(outdir, file.replace(/\.ts$/, ".mjs")));
}

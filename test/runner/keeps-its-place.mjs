import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

/** Not written out, because this file may be compiled in this way, too. */
const META = ["import", "meta"].join(".");

/**
 * Keeps the source's own path in a compiled file, so that it finds the files beside its source.
 * @param {(path: string, source: string) => string} [change] of a source before it is compiled
 * @returns {import("esbuild").Plugin}
 */
export const keepsItsPlace = (change = (_path, source) => source) => ({
  name: "keeps-its-place",
  setup(build) {
    build.onLoad({ filter: /\.(ts|mts|mjs)$/, namespace: "file" }, async ({ path }) => {
      const source = change(path, await readFile(path, "utf8"));
      const loader = path.endsWith(".mjs") ? "js" : "ts";
      const contents = source
        .replaceAll(`${META}.url`, JSON.stringify(pathToFileURL(path).href))
        .replaceAll(`${META}.dirname`, JSON.stringify(join(path, "..")))
        .replaceAll(`${META}.filename`, JSON.stringify(path));
      return { contents, loader };
    });
  },
});

/**
 * Planted defects: patches that bring a known past defect back into the present source. A simulation that does not
 * find them proves nothing about the defects that nobody knows. defects.ts is the list.
 */
import { readFile } from "node:fs/promises";
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { Plugin } from "esbuild";
import { ROOT } from "../../../server/infra/root.ts";
import { DEFECTS, type Patch, type PlantedDefect } from "./defects.ts";

export { DEFECTS, type PlantedDefect };

const FUNCTIONS = "prisma/functions/";

export function defectOf(name: string): PlantedDefect {
  const defect = DEFECTS.find((one) => one.name === name);
  if (!defect) throw new Error(`there is no planted defect "${name}"`);
  return defect;
}

/** All patches of a defect, of one file each. */
export const patchesOf = (defect: PlantedDefect): Patch[] =>
  defect.second ? [defect, defect.second] : [defect];

/** The source with the defect in it; a file that it does not patch is returned as it is. */
export function apply(source: string, file: string, name: string): string {
  const patch = patchesOf(defectOf(name)).find((one) => one.file === file);
  return patch ? patch.changes.reduce(planted(name, file), source) : source;
}

/** A patch that fits nowhere, or in two places, plants nothing that is known. */
const planted =
  (name: string, file: string) =>
  (source: string, { find, replace }: Patch["changes"][number]): string => {
    const [before, after, ...more] = source.split(find);
    if (before === undefined || after === undefined || more.length > 0)
      throw new Error(`${name}: ${file} must have this once: ${find}`);
    return `${before}${replace}${after}`;
  };

/** Plants a defect of TypeScript files while they are compiled. Before a plugin that also loads files, since the first wins. */
export function plantedIn(name: string): Plugin {
  const files = new Set(patchesOf(defectOf(name)).map(({ file }) => file));
  return {
    name: "planted",
    setup(build) {
      build.onLoad({ filter: /\.ts$/, namespace: "file" }, async ({ path }) => {
        const file = relative(fileURLToPath(ROOT), path);
        return files.has(file)
          ? { contents: apply(await readFile(path, "utf8"), file, name), loader: "ts" }
          : undefined;
      });
    },
  };
}

/** The SQL functions to install with the defect. */
export async function plantedFunctions(name: string): Promise<{ name: string; sql: string }[]> {
  const files = patchesOf(defectOf(name)).map(({ file }) => file);
  return Promise.all(
    files
      .filter((file) => file.startsWith(FUNCTIONS))
      .map(async (file) => ({
        name: file.slice(FUNCTIONS.length, -".sql".length),
        sql: apply(await readFile(new URL(file, ROOT), "utf8"), file, name),
      })),
  );
}

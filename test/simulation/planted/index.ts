/**
 * Planted defects: patches that bring a known past defect back into the present source. A simulation that does not
 * find them proves nothing about the defects that nobody knows. defects.ts is the list.
 */
import { readFile } from "node:fs/promises";
import { relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { Plugin } from "esbuild";
import { ROOT } from "../../../server/infra/root.ts";
import { DEFECTS, type PlantedDefect } from "./defects.ts";

export { DEFECTS, type PlantedDefect };

const FUNCTIONS = "prisma/functions/";

export function defectOf(name: string): PlantedDefect {
  const defect = DEFECTS.find((one) => one.name === name);
  if (!defect) throw new Error(`there is no planted defect "${name}"`);
  return defect;
}

/** The source with the defect in it; another file than the defect's is returned as it is. */
export function apply(source: string, file: string, name: string): string {
  const defect = defectOf(name);
  return file === defect.file ? defect.changes.reduce(planted(defect), source) : source;
}

/** A patch that fits nowhere, or in two places, plants nothing that is known. */
const planted =
  ({ name, file }: PlantedDefect) =>
  (source: string, { find, replace }: PlantedDefect["changes"][number]): string => {
    const [before, after, ...more] = source.split(find);
    if (before === undefined || after === undefined || more.length > 0)
      throw new Error(`${name}: ${file} must have this once: ${find}`);
    return `${before}${replace}${after}`;
  };

/** Plants a defect of a TypeScript file while it is compiled. Before a plugin that also loads files, since the first wins. */
export function plantedIn(name: string): Plugin {
  const { file } = defectOf(name);
  return {
    name: "planted",
    setup(build) {
      build.onLoad({ filter: /\.ts$/, namespace: "file" }, async ({ path }) =>
        relative(fileURLToPath(ROOT), path) === file
          ? { contents: apply(await readFile(path, "utf8"), file, name), loader: "ts" }
          : undefined,
      );
    },
  };
}

/** The SQL function to install with its defect. Undefined for a defect of a TypeScript file. */
export async function plantedFunction(
  name: string,
): Promise<{ name: string; sql: string } | undefined> {
  const { file } = defectOf(name);
  if (!file.startsWith(FUNCTIONS)) return undefined;
  const source = await readFile(new URL(file, ROOT), "utf8");
  return {
    name: file.slice(FUNCTIONS.length, -".sql".length),
    sql: apply(source, file, name),
  };
}

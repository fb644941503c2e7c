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

/** The files that a defect changes. */
export const filesOf = ({ file, changes }: PlantedDefect): string[] => [
  ...new Set([file, ...changes.map((change) => change.file ?? file)]),
];

/** The source with the defect in it; a file that the defect does not change is returned as it is. */
export function apply(source: string, file: string, name: string): string {
  const defect = defectOf(name);
  return defect.changes
    .filter((change) => (change.file ?? defect.file) === file)
    .reduce(planted(name, file), source);
}

/** A patch that fits nowhere, or in two places, plants nothing that is known. */
const planted =
  (name: string, file: string) =>
  (source: string, { find, replace }: PlantedDefect["changes"][number]): string => {
    const [before, after, ...more] = source.split(find);
    if (before === undefined || after === undefined || more.length > 0)
      throw new Error(`${name}: ${file} must have this once: ${find}`);
    return `${before}${replace}${after}`;
  };

/** Plants a defect of TypeScript files while they are compiled. Before a plugin that also loads files, since the first wins. */
export function plantedIn(name: string): Plugin {
  const files = filesOf(defectOf(name));
  return {
    name: "planted",
    setup(build) {
      build.onLoad({ filter: /\.ts$/, namespace: "file" }, async ({ path }) => {
        const file = relative(fileURLToPath(ROOT), path);
        return files.includes(file)
          ? { contents: apply(await readFile(path, "utf8"), file, name), loader: "ts" }
          : undefined;
      });
    },
  };
}

/** The SQL functions to install with the defect, by name. */
export async function plantedFunctions(name: string): Promise<Map<string, string>> {
  const functions = new Map<string, string>();
  for (const file of filesOf(defectOf(name)))
    if (file.startsWith(FUNCTIONS))
      functions.set(
        file.slice(FUNCTIONS.length, -".sql".length),
        apply(await readFile(new URL(file, ROOT), "utf8"), file, name),
      );
  return functions;
}

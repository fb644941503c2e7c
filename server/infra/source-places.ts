/**
 * Maps positions in stack traces of the compiled files (build.mjs) to the sources. It works only when an error is
 * reported: Node's own source-map support costs half a second of each start.
 */
import { readFileSync } from "node:fs";
import { SourceMap } from "node:module";
import { dirname, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { ROOT } from "./root.ts";

const PLACE = /(?:file:\/\/)?(\/[^\s():]*\/server\/dist\/[^\s():]+\.c?js):(\d+):(\d+)/g;
const maps = new Map<string, SourceMap | undefined>();

export const withSourceLocations = (stack: string): string =>
  stack.replace(PLACE, (whole, file: string, line: string, column: string) => {
    const entry = mapOf(file)?.findEntry(Number(line) - 1, Number(column) - 1);
    // Code without a source, such as what the compiler adds, has an entry without a source name.
    if (!isOfSource(entry)) return whole;
    const source = resolve(dirname(file), entry.originalSource);
    return `${relative(fileURLToPath(ROOT), source)}:${entry.originalLine + 1}:${entry.originalColumn + 1}`;
  });

interface Place {
  originalSource: string;
  originalLine: number;
  originalColumn: number;
}
/** The library's type does not allow for undefined fields. */
const isOfSource = (entry: Partial<Place> | undefined): entry is Place =>
  entry?.originalSource?.endsWith(".ts") === true;

function mapOf(file: string): SourceMap | undefined {
  if (!maps.has(file)) maps.set(file, readMap(file));
  return maps.get(file);
}

function readMap(file: string): SourceMap | undefined {
  try {
    return new SourceMap(JSON.parse(readFileSync(`${file}.map`, "utf8")));
  } catch {
    return undefined;
  }
}

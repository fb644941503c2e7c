// Puts all mutants of the TypeScript files into one instrumented copy, each behind a switch, so that the tests are
// compiled once.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Instrumenter } from "@stryker-mutator/instrumenter";
import { ROOT } from "../../server/local/bootstrap.mjs";

/** Texts are for people, codes and members are held by the types: such mutants say nothing about a decision. */
const LEFT_OUT = ["StringLiteral", "ObjectLiteral", "Regex"];

const silent = () => undefined;
const LOG = {
  ...Object.fromEntries(
    ["trace", "debug", "info", "warn", "error", "fatal"].map((name) => [name, silent]),
  ),
  ...Object.fromEntries(
    ["Trace", "Debug", "Info"].map((name) => [`is${name}Enabled`, () => false]),
  ),
};

/**
 * @param {string[]} files relative to the repository
 * @returns {Promise<{mutants: {id: string, at: number, file: string, line: number, from: string, to: string}[],
 *   change: (path: string, source: string) => string}>}
 */
export async function mutantsOfTypescript(files) {
  const sources = new Map(
    files.map((file) => [join(ROOT, file), readFileSync(join(ROOT, file), "utf8")]),
  );
  const { files: instrumented, mutants } = await new Instrumenter(LOG).instrument(
    [...sources].map(([name, content]) => ({ name, content, mutate: true })),
    { plugins: null, ignorers: [], excludedMutations: LEFT_OUT },
  );
  const changed = new Map(instrumented.map(({ name, content }) => [name, content]));
  return {
    mutants: mutants
      .filter(({ status }) => status !== "Ignored")
      .map(({ id, fileName, location, replacement }) => {
        const source = sources.get(fileName);
        const at = offsetOf(source, location.start);
        const from = source.slice(at, offsetOf(source, location.end));
        return {
          id,
          at,
          file: fileName.slice(ROOT.length + (ROOT.endsWith("/") ? 0 : 1)),
          line: location.start.line + 1,
          from,
          to: replacement,
        };
      }),
    change: (path, source) => changed.get(path) ?? source,
  };
}

function offsetOf(source, { line, column }) {
  let at = 0;
  for (let passed = 0; passed < line; passed += 1) at = source.indexOf("\n", at) + 1;
  return at + column;
}

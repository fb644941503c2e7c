// Finds the compiled form of programs that tests start as child processes (`*.child.ts`).
import { existsSync } from "node:fs";
import { join } from "node:path";

/** @param file relative to the repository */
export function childScript(file: string): string {
  const folder = process.env["PURSER_TEST_COMPILED"];
  if (folder === undefined) throw new Error("run tests with `npm test -- <files>`");
  const compiled = join(folder, file.replace(/\.ts$/, ".mjs"));
  if (!existsSync(compiled)) throw new Error(`${file} was not compiled: is it a *.child.ts?`);
  return compiled;
}

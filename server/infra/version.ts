import { readFileSync } from "node:fs";
import { ROOT } from "./root.ts";

const manifest = JSON.parse(readFileSync(new URL("package.json", ROOT), "utf8")) as {
  version: string;
};

export const VERSION: string = manifest.version;

interface Build {
  /** Of the checkout that was compiled, with `-dirty` if it had changes; "source" if the sources run directly. */
  commit: string;
  builtAt: string | null;
}

/** Written into the compiled server by build.mjs. */
declare const PURSER_BUILD: Build | undefined;

export const BUILD: Build =
  typeof PURSER_BUILD === "undefined" ? { commit: "source", builtAt: null } : PURSER_BUILD;

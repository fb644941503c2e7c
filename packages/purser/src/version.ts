import { readFileSync } from "node:fs";

/** The version of this package. The manifest is one folder above the source, and above the built files. */
export const { version: VERSION } = JSON.parse(
  readFileSync(new URL("../package.json", import.meta.url), "utf8"),
) as { version: string };

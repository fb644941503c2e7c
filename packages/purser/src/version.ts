import { readFileSync } from "node:fs";

/** Of this package: its manifest lies one folder up from the source, and from what is built of it. */
export const { version: VERSION } = JSON.parse(
  readFileSync(new URL("../package.json", import.meta.url), "utf8"),
) as { version: string };

import { readFileSync } from "node:fs";
import { ROOT } from "./root.ts";

const manifest = JSON.parse(readFileSync(new URL("package.json", ROOT), "utf8")) as {
  version: string;
};

export const VERSION: string = manifest.version;

// The faults of the worlds.
import type { Kind } from "../plan.ts";
import * as blocks from "./blocks.ts";
import { crash } from "./crash.ts";
import * as database from "./database.ts";
import * as endpoints from "./endpoints.ts";
import * as outsiders from "./outsiders.ts";
import * as processes from "./processes.ts";

export const FAULTS: Readonly<Record<string, Kind>> = {
  crash,
  ...processes,
  ...database,
  ...endpoints,
  ...blocks,
  ...outsiders,
};

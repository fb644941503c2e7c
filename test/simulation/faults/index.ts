// The faults of the worlds.
import type { Kind } from "../kind.ts";
import {
  blocksPassUsOver,
  blocksStop,
  deepReorganisation,
  depositRemoved,
  gasDear,
  incomingRemoved,
  poolEmptied,
  reorganisation,
} from "./blocks.ts";
import { crash } from "./crash.ts";
import * as database from "./database.ts";
import {
  connectionsUnsteady,
  endpointLies,
  endpointsAway,
  endpointsLate,
  methodsMissing,
  sendsFail,
} from "./endpoints.ts";
import * as outsiders from "./outsiders.ts";
import * as processes from "./processes.ts";

export const FAULTS: Readonly<Record<string, Kind>> = {
  crash,
  ...processes,
  ...database,
  connectionsUnsteady,
  endpointLies,
  endpointsAway,
  endpointsLate,
  methodsMissing,
  sendsFail,
  blocksPassUsOver,
  blocksStop,
  deepReorganisation,
  gasDear,
  incomingRemoved,
  poolEmptied,
  reorganisation,
  depositRemoved,
  ...outsiders,
};

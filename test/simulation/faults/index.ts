// The faults of the worlds.
import type { Kind } from "../plan.ts";
import { crash } from "./crash.ts";

export const FAULTS: Readonly<Record<string, Kind>> = { crash };

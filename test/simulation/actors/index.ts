// The actors of the worlds.
import type { Kind } from "../plan.ts";
import { spender } from "./spender.ts";

export const ACTORS: Readonly<Record<string, Kind>> = { spender };

// The actors of the worlds.
import type { Kind } from "../plan.ts";
import { buyer } from "./buyer.ts";
import { seller } from "./seller.ts";
import { spender } from "./spender.ts";

export const ACTORS: Readonly<Record<string, Kind>> = { buyer, seller, spender };

// The actors of the worlds.
import type { Kind } from "../plan.ts";
import { approvals } from "./approvals.ts";
import { clasher } from "./clasher.ts";
import { depositor } from "./depositor.ts";
import { keyless } from "./keyless.ts";
import { rules } from "./rules.ts";
import { buyer } from "./buyer.ts";
import { seller } from "./seller.ts";
import { spender } from "./spender.ts";
import { withdrawal } from "./withdrawal.ts";

export const ACTORS: Readonly<Record<string, Kind>> = {
  spender,
  rules,
  withdrawal,
  keyless,
  buyer,
  seller,
  approvals,
  clasher,
  depositor,
};

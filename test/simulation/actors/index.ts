// The actors of the worlds.
import type { Kind } from "../plan.ts";
import { approvals } from "./approvals.ts";
import { buyer } from "./buyer.ts";
import { clasher } from "./clasher.ts";
import { depositor } from "./depositor.ts";
import { rules } from "./rules.ts";
import { spender } from "./spender.ts";
import { withdrawal } from "./withdrawal.ts";

export const ACTORS: Readonly<Record<string, Kind>> = {
  spender,
  rules,
  withdrawal,
  buyer,
  approvals,
  clasher,
  depositor,
};

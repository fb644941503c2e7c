// The actors of the worlds.
import type { Kind } from "../kind.ts";
import { approvals } from "./approvals.ts";
import { burst } from "./burst.ts";
import { buyer } from "./buyer.ts";
import { canceler } from "./canceler.ts";
import { channeler } from "./channeler.ts";
import { clasher } from "./clasher.ts";
import { depositor } from "./depositor.ts";
import { fetcher } from "./fetcher.ts";
import { merchant } from "./merchant.ts";
import { rules } from "./rules.ts";
import { seller } from "./seller.ts";
import { spender } from "./spender.ts";
import { stopper } from "./stopper.ts";
import { withdrawal } from "./withdrawal.ts";

export const ACTORS: Readonly<Record<string, Kind>> = {
  spender,
  rules,
  withdrawal,
  buyer,
  burst,
  approvals,
  canceler,
  clasher,
  depositor,
  seller,
  fetcher,
  merchant,
  channeler,
  stopper,
};

/** The table of rate limits. */
import { readChanges } from "./setting.ts";

interface RateLimit {
  perMinute: number;
  /** Counted in Postgres, for all replicas together. The others protect one process from a flood. */
  isShared: boolean;
}

const own = (perMinute: number): RateLimit => ({ perMinute, isShared: false });
const shared = (perMinute: number): RateLimit => ({ perMinute, isShared: true });

export const RATE_LIMITS = {
  /** Requests without credentials, by address. */
  address: own(3_000),
  /** Credentials that are not verified yet, by address; checked before the database is read. */
  unproven: own(300),
  agent: own(6_000),
  session: own(3_000),
  spend: shared(6_000),
  fetch: shared(3_000),
  verify: shared(600_000),
  settle: shared(120_000),
  /** Settlements that one payer signed, from any client. Gas is accounted for separately. */
  payer: own(30_000),
  "sign-in": shared(300),
  probe: shared(120),
  /** The validator: by caller, of one target host, and in all. */
  validate: shared(20),
  "validate-host": shared(30),
  "validate-all": shared(300),
  /** Requests that send something to a webhook, or change one. */
  webhook: shared(60),
  /** Clients that register themselves (OAuth), by address. */
  register: shared(60),
  /** Renewals of one connection's tokens. */
  renewal: own(60),
  /** Tasks that an agent opens or closes. */
  task: shared(120),
  faucet: own(600),
  /** Searches, sums and exports over all payments of an owner. */
  report: own(300),
  /** The operators' page. */
  operator: own(300),
  /** Its checks of the deployment, which call nodes and other servers. */
  checks: shared(6),
  /** Receipts of merchants, which are signed each time. */
  receipt: shared(60),
  /** Ids of settlements that are not in this cell, by address: each asks all other cells. */
  cells: shared(300),
} as const satisfies Record<string, RateLimit>;

export type LimitName = keyof typeof RATE_LIMITS;
export type RateLimits = Record<LimitName, RateLimit>;

const MAX_PER_MINUTE = 10_000_000;

/** `spend=600,verify=60000`: an operator's changes to the table. */
export const readRateLimits = (text: string): RateLimits =>
  readChanges<LimitName, RateLimit>(text, RATE_LIMITS, {
    what: `requests per minute, up to ${MAX_PER_MINUTE},`,
    read: (count, limit) =>
      /^[1-9][0-9]{0,7}$/.test(count) && Number(count) <= MAX_PER_MINUTE
        ? { ...limit, perMinute: Number(count) }
        : undefined,
  });

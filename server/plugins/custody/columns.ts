/** Rules as the statement of store.ts spells the columns they are kept in: the two are compared before each signature. */
import type { Payee, RulesInForce } from "../../core/rules.ts";

const text = (value: bigint | null): string => (value === null ? "" : String(value));
/** As Postgres writes the seconds of a time. */
const timeText = (seconds: bigint | null): string =>
  seconds === null ? "" : `${String(seconds)}.000000`;

/** What the statement of store.ts says of an agent's columns. */
export const columnsText = (network: string, rules: RulesInForce): string =>
  [
    network,
    rules.status,
    text(rules.dailyLimitAtomic),
    text(rules.weeklyLimitAtomic),
    text(rules.monthlyLimitAtomic),
    text(rules.perPaymentLimitAtomic),
    text(rules.paymentsPerHour),
    rules.fetch,
    timeText(rules.expiresAtSeconds),
  ].join("|");

export const payeeText = (payee: Payee): string =>
  [
    payee.site,
    text(payee.dailyLimitAtomic),
    text(payee.perPaymentLimitAtomic),
    timeText(payee.expiresAtSeconds),
  ].join("|");

/**
 * Rules in the text format of the statement in store.ts: columns and signed rules are compared before each signature.
 */
import type { Address, Hex } from "viem";
import type { Authorization } from "../../core/authorization.ts";
import { payeeKey, type Payee, type RulesInForce } from "../../core/rules.ts";
import { ApiError } from "../../errors.ts";
import type { LoadedWallet, PaidAt, Verified } from "./covers.ts";
import { NotSignedFor } from "./envelope.ts";

/** A withdrawal as ordered by the owner. */
export interface WithdrawalRow {
  to: Address;
  amountAtomic: bigint;
  deadlineSeconds: bigint;
  signature: Hex;
}

const text = (value: bigint | null): string => (value === null ? "" : String(value));
/** Postgres' text of a time in seconds. */
const timeText = (seconds: bigint | null): string =>
  seconds === null ? "" : `${String(seconds)}.000000`;

/** An agent's columns, as the statement of store.ts returns them. */
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

/** Nothing is signed unless the columns equal the verified rules. */
export function assertSameColumns(loaded: LoadedWallet, verified: Verified, paidAt: PaidAt): void {
  const address = paidAt.payee as Address;
  const known =
    verified.payees.get(payeeKey({ address, site: paidAt.site })) ??
    verified.payees.get(payeeKey({ address, site: "" }));
  const fail = (what: string) => new NotSignedFor(`agent ${loaded.agentId}: ${what}`);
  if (loaded.columns !== verified.columns) throw fail("its columns are not what was sealed");
  if (loaded.payeeColumns !== (known ? payeeText(known) : null))
    throw fail("the row of its payee is not what was sealed");
  if (loaded.latestVersion !== verified.version) throw fail("its policy is not the latest one");
}

/** The rows are consistent, so a payment that is not covered is no forgery: the rules changed after the decision. */
export function assertCovered(
  { nowSeconds }: LoadedWallet,
  verified: Verified,
  {
    authorization,
    site,
  }: { authorization: Pick<Authorization, "to" | "value">; site: string | undefined },
): void {
  const payment = {
    payee: authorization.to,
    valueAtomic: authorization.value,
    nowSeconds,
    ...(site === undefined ? {} : { site }),
  };
  if (verified.status !== "active" || !verified.judge(payment).covered) throw changedMeanwhile();
}

export const changedMeanwhile = (): ApiError =>
  new ApiError("service_unavailable", {
    detail: "The agent's rules changed during this payment. Nothing was signed. Try again.",
  });

export const chainUnavailable = (): ApiError =>
  new ApiError("chain_unavailable", {
    detail: "The owner's contract could not be read to check this signature.",
  });

/**
 * What this facilitator charges the payee for a settlement. It is never taken from the payment: it is billed to the
 * payee's account on that network (docs/decisions/0044-fees.md).
 */
import type { Address } from "viem";
import { parseAddress } from "./foreign-text.ts";
import { formed } from "./setting.ts";

export interface FeeTerms {
  perSettlementAtomic: bigint;
  /** Of the amount: 2,500 is 2.5 per mille. */
  partsPerMillion: bigint;
  /** How much an account may owe before its next payments are refused. */
  creditAtomic: bigint;
  /** Where fees are paid. Undefined only if nothing is charged. */
  payTo: Address | undefined;
}

const MILLION = 1_000_000n;
/**
 * No fee is more than a tenth of its payment. Anybody can have a payment to any payee settled: what that adds to the
 * payee's debt always comes with ten times as much money for the payee.
 */
export const MOST_PER_MILLE = 100n;

export const chargesFees = (terms: FeeTerms): boolean =>
  terms.perSettlementAtomic > 0n || terms.partsPerMillion > 0n;

/** Rounded down, in the payee's favour. */
export function feeOn(terms: FeeTerms, amountAtomic: bigint): bigint {
  const fee = terms.perSettlementAtomic + (amountAtomic * terms.partsPerMillion) / MILLION;
  const most = (amountAtomic * MOST_PER_MILLE) / 1_000n;
  return fee < most ? fee : most;
}

/** `2.5` to 2,500 parts per million. */
export const perMille = formed(
  `a number from 0 to ${MOST_PER_MILLE} with at most 3 decimals, such as 2.5`,
  (text) => {
    const [, whole, fraction = ""] = /^(0|[1-9][0-9]{0,2})(?:\.([0-9]{1,3}))?$/.exec(text) ?? [];
    if (whole === undefined) return undefined;
    const parts = BigInt(whole) * 1_000n + BigInt(fraction.padEnd(3, "0"));
    return parts <= MOST_PER_MILLE * 1_000n ? parts : undefined;
  },
);

export const formatPerMille = (partsPerMillion: bigint): string => {
  const fraction = (partsPerMillion % 1_000n).toString().padStart(3, "0").replace(/0+$/, "");
  return `${partsPerMillion / 1_000n}${fraction === "" ? "" : `.${fraction}`}`;
};

/** In lower case. */
export const feeAddress = formed("an address with a right checksum, or in lower case", (text) => {
  const parsed = parseAddress(text);
  return parsed.ok ? parsed.address : undefined;
});

/** What is stored with a settlement when it is accepted, and never changed by a later configuration. */
export type FeeAgreement =
  /** Charged to this account when the settlement happens. */
  | { account: Address; amount: string }
  /** The settlement pays this account's fees. */
  | { account: Address };

/** The path at which fees are paid. Its query names the account. */
export const PAY_FEES_PATH = "/api/merchant/fees/pay";

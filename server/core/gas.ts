/**
 * Gas accounting (docs/decisions/0018-gas-is-accounted-money.md): the cost of gas in USDC, the accounts that are
 * charged, and their daily gas budgets. Amounts are in units of 10^-18 USDC, like Arc's native coin: a unit of gas may
 * cost far less than an atomic unit of USDC.
 */
import { formatAtomic, parseDecimal } from "./money.ts";
import { readChanges } from "./setting.ts";

/**
 * USDC per day. The four shares (strangers, merchants, agents, withdrawals) are the network's whole budget; the others
 * limit a single account within a share.
 */
export const GAS_BUDGET = {
  /** Payments of third parties without a known credential. */
  strangers: "100",
  /** Payments of merchants with an API key of ours. */
  merchants: "100",
  /** Agents' spends, fetches and cancellations. */
  agents: "100",
  withdrawals: "50",
  /** One third-party payer; one third-party payee; one merchant's key. */
  payer: "10",
  payee: "50",
  merchant: "50",
  /** All agents of one owner, and its withdrawals. */
  owner: "20",
  withdrawer: "10",
} as const;
export type GasBudgetName = keyof typeof GAS_BUDGET;
export const GAS_SHARES = ["strangers", "merchants", "agents", "withdrawals"] as const;

/**
 * How many cancellations one payee may cause for one owner's agents in a day; further authorizations are left to
 * expire.
 */
export const CANCELS = "cancels";

/** By the first part of an account's name; a gas limit of zero blocks everything. */
export type GasLimits = Readonly<Record<GasBudgetName | typeof CANCELS, bigint>>;

/** A transfer or cancellation of an EOA, alone in its transaction, which costs more than in a batch. */
export const PLAIN_GAS = 90_000n;
const UNITS_PER_ATOMIC = 10n ** 12n;

export const unitsOf = (atomic: bigint): bigint => atomic * UNITS_PER_ATOMIC;

/** Rounded up: a used amount is never shown as zero. */
export const formatGas = (units: bigint): string =>
  formatAtomic(units > 0n ? (units + UNITS_PER_ATOMIC - 1n) / UNITS_PER_ATOMIC : 0n);

/**
 * The amount to reserve before the cost is known: the current base fee plus a quarter, capped at the highest fee that
 * we ever offer, whatever a node suggests.
 */
export function gasHoldOf(args: {
  baseFeeWei: bigint;
  priorityFeeWei: bigint;
  caps: { maxFeeWei: bigint; priorityFeeWei: bigint };
  nativePriceAtomic: bigint;
  gas: bigint;
}): bigint {
  const { caps, gas } = args;
  const wei = (args.baseFeeWei * 5n) / 4n + least(args.priorityFeeWei, caps.priorityFeeWei);
  return costOf(gas * least(wei, caps.maxFeeWei), args.nativePriceAtomic);
}

const least = (one: bigint, other: bigint): bigint => (one < other ? one : other);

/** The USDC value of an amount of the network's coin (18 decimals), at the operator's price for one coin. */
export const costOf = (wei: bigint, nativePriceAtomic: bigint): bigint =>
  (wei * nativePriceAtomic + 999_999n) / 1_000_000n;

/** The accounts that are charged for one facilitated payment: the share, and the accounts within it. */
export const accountsOf = (payment: {
  from: string;
  to: string;
  merchant: string | undefined;
}): string[] =>
  payment.merchant === undefined
    ? [`payee:${payment.to.toLowerCase()}`, `payer:${payment.from.toLowerCase()}`, "strangers"]
    : [`merchant:${payment.merchant}`, "merchants"];

/** `strangers=5,payer=0.5`: an operator's changes to the budgets of one network. */
export const readGasBudget = (text: string): Record<GasBudgetName, bigint> =>
  readChanges(text, USUAL_BUDGET, { what: "USDC per day", read: budgetUnits });

function budgetUnits(text: string): bigint | undefined {
  const parsed = parseDecimal(text);
  return parsed.ok && text.length <= 16 ? unitsOf(parsed.atomic) : undefined;
}

const USUAL_BUDGET = Object.fromEntries(
  Object.entries(GAS_BUDGET).map(([name, amount]) => [name, budgetUnits(amount)]),
) as Record<GasBudgetName, bigint>;

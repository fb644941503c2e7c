/**
 * Gas as money (docs/decisions/0018-gas-is-accounted-money.md): what it costs in USDC, who is charged for it, and how
 * much of it each may use in a day. Amounts are in units of 10^-18 USDC, as Arc's own coin counts: a unit of gas may cost
 * far less than an atomic unit of USDC.
 */
import { formatAtomic, parseDecimal } from "./money.ts";

/** USDC per day: the four shares are the network's whole budget; the others bound one of those who use them. */
export const GAS_BUDGET = {
  /** Payments of third parties without a known credential. */
  strangers: "100",
  /** Those of merchants with a key of ours. */
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

/** How many cancellations one payee may force on one owner's agents in a day; then they are left to lapse. */
export const CANCELS = "cancels";

/** By the first part of an account's name; a gas limit of zero lets nothing through. */
export type GasLimits = Readonly<Record<GasBudgetName | typeof CANCELS, bigint>>;

/** A plain key's transfer or cancellation, alone in its transaction: more expensive than in a batch. */
export const PLAIN_GAS = 90_000n;
const UNITS_PER_ATOMIC = 10n ** 12n;

export const unitsOf = (atomic: bigint): bigint => atomic * UNITS_PER_ATOMIC;

/** Rounded up: a used amount is never shown as nothing. */
export const formatGas = (units: bigint): string =>
  formatAtomic(units > 0n ? (units + UNITS_PER_ATOMIC - 1n) / UNITS_PER_ATOMIC : 0n);

/**
 * What is set aside before it is known what it costs: a quarter more than the base fee of now, and never more than the
 * caps on what is offered, whatever a node suggests.
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

/** What so much of the network's coin (18 decimals) is in USDC, at the operator's price for one coin. */
export const costOf = (wei: bigint, nativePriceAtomic: bigint): bigint =>
  (wei * nativePriceAtomic + 999_999n) / 1_000_000n;

/** Who is charged for one facilitated payment: whose share, and who in it. */
export const accountsOf = (payment: {
  from: string;
  to: string;
  merchant: string | undefined;
}): string[] =>
  payment.merchant === undefined
    ? [`payee:${payment.to.toLowerCase()}`, `payer:${payment.from.toLowerCase()}`, "strangers"]
    : [`merchant:${payment.merchant}`, "merchants"];

/** `strangers=5,payer=0.5`: an operator's changes to the table, for one network. */
export function readGasBudget(
  key: string,
  text: string | undefined,
  problems: string[],
): Record<GasBudgetName, bigint> {
  const budget: Record<string, string> = { ...GAS_BUDGET };
  for (const entry of (text ?? "").split(",").map((part) => part.trim())) {
    if (entry === "") continue;
    const [name = "", amount = "", ...more] = entry.split("=");
    const isAmount = more.length === 0 && amount.length <= 16 && parseDecimal(amount).ok;
    if (!Object.hasOwn(GAS_BUDGET, name) || !isAmount)
      problems.push(
        `${key} has "${entry}"; it lists name=USDC per day of ${Object.keys(GAS_BUDGET).join(", ")}`,
      );
    else budget[name] = amount;
  }
  const units = Object.entries(budget).map(([name, amount]) => {
    const parsed = parseDecimal(amount);
    return [name, parsed.ok ? unitsOf(parsed.atomic) : 0n];
  });
  return Object.fromEntries(units) as Record<GasBudgetName, bigint>;
}

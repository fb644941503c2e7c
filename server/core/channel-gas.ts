/**
 * What the two transactions of a withdrawal from a payment channel without its receiver cost on the local chain, to a wallet that has nothing left
 * (a test measures it).
 */
export const MEASURED_WITHDRAWAL_GAS = { begin: 53_000n, finish: 68_000n } as const;
/** A half more: on other networks USDC is behind a proxy, and costs at most some 15,000 gas more. */
export const withMargin = (gas: bigint): bigint => (gas * 3n) / 2n;
/** To be set aside for a channel whose receiver does not return the rest. */
export const WITHDRAWAL_GAS = withMargin(
  MEASURED_WITHDRAWAL_GAS.begin + MEASURED_WITHDRAWAL_GAS.finish,
);

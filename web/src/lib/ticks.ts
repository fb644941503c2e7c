const MOST_STEPS = 5n;

/**
 * The ticks of an axis, from 0 to at least the highest value, 1, 2, 2.5 or 5 times a power of ten apart. The
 * unit is the smallest one (a count, or an atomic unit of money), so that no tick is a fraction of it or
 * rounded.
 */
export function niceTicks(highest: bigint): bigint[] {
  const step = niceStep(highest);
  const count = highest <= step ? 1n : (highest + step - 1n) / step;
  return Array.from({ length: Number(count) + 1 }, (_, index) => BigInt(index) * step);
}

function niceStep(highest: bigint): bigint {
  for (let power = 1n; ; power *= 10n)
    for (const tenths of [10n, 20n, 25n, 50n]) {
      const step = (tenths * power) / 10n;
      const isWhole = (tenths * power) % 10n === 0n;
      if (isWhole && step * MOST_STEPS >= highest) return step;
    }
}

const integer = new Intl.NumberFormat("en");

/** `1 payment`, `2,000 payments`. */
export const plural = (count: number, one: string, many = `${one}s`): string =>
  `${integer.format(count)} ${count === 1 ? one : many}`;

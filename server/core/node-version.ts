/** Which versions of Node get security fixes, as nodejs.org schedules them. */

/** Even majors from this one on. server/local/bootstrap.mjs holds the oldest that runs. */
const OLDEST_RECOMMENDED = 22;

/** One sentence, or undefined for a version that we recommend. */
export function nodeAdvice(version: string): string | undefined {
  const major = Number.parseInt(version, 10);
  if (major < OLDEST_RECOMMENDED)
    return `Node ${version} gets no security fixes any more. Use Node 22 or 24.`;
  // Odd versions end after half a year.
  return major % 2 === 1
    ? `Node ${version} is not a version with long-term support. Use Node 22 or 24.`
    : undefined;
}

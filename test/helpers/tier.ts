/** Whether a test runs all its variants; in the default tier it runs one of each kind. */
export const isFullTier = process.env["PURSER_TEST_TIER"] !== "default";

/** The runs of a property: mutation testing repeats the test for every mutant, and takes a part of them. */
export const runsOf = (runs: number): number =>
  Math.ceil(runs * Number(process.env["PURSER_TEST_EFFORT"] ?? 1));

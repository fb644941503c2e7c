/** Whether a test runs all its variants; in the default tier it runs one of each kind. */
export const isFullTier = process.env["PURSER_TEST_TIER"] !== "default";

/** Whether a test runs with all it has; in the default tier one of each kind has to do. */
export const isFullTier = process.env["PURSER_TEST_TIER"] !== "default";

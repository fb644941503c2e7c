/** SQLSTATEs of the fences in `purser_lane_persist`: when one is raised, nothing was written. */
export const LEASE_LOST = "PU001";
export const CLAIM_LOST = "PU002";
export const OVER_GAS_CEILING = "PU003";

export const sqlState = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && typeof error.code === "string"
    ? error.code
    : undefined;

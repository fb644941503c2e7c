/** The SQLSTATEs our own functions raise. When one is raised, nothing was written. */

/** `purser_lane_persist`: this process holds the lane no more. */
export const LEASE_LOST = "PU001";
/** `purser_lane_persist`: an item belongs to another claim by now. */
export const CLAIM_LOST = "PU002";
/** `purser_lane_persist`: the day's gas for facilitated work is used up. */
export const OVER_GAS_CEILING = "PU003";
/** `purser_submit_payment`: the reservation was released before its authorization was accepted. */
export const RESERVATION_GONE = "PU004";

/** One of Postgres' own: a lock was not to be had within `lock_timeout`. */
export const LOCK_TIMEOUT = "55P03";
/** A statement took longer than `statement_timeout`. */
export const QUERY_CANCELED = "57014";
/** A transaction was left alone for longer than `idle_in_transaction_session_timeout`. */
export const IDLE_IN_TRANSACTION = "25P03";

export const sqlState = (error: unknown): string | undefined =>
  error instanceof Error && "code" in error && typeof error.code === "string"
    ? error.code
    : undefined;

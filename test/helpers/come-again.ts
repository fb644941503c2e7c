/** Codes that are no outcome: a careful client sends the same request again, with the same key. */
export const COME_AGAIN: ReadonlySet<string> = new Set([
  "idempotency_in_progress",
  "payment_status_unknown",
  "chain_unavailable",
  "service_unavailable",
  "relayer_unfunded",
  "rate_limited",
  "internal_error",
]);

/**
 * A stored authorization whose scheme this release does not know: a newer release accepted it, and was rolled back.
 * Nothing is sent for it and nothing is decided about it. The newer release does both when it runs again.
 */
import type { Relaying } from "./scheme.ts";

/** No log has this topic. */
const NO_EVENT = `0x${"0".repeat(64)}` as const;

export const unknown: Relaying = {
  planTransfer: () => {
    throw new Error("the scheme of this settlement is not known to this release");
  },
  // A call without data: its result means neither used nor unused.
  stateCall: ({ asset }) => ({ target: asset, data: "0x" }),
  isEnded: () => undefined,
  outcomeIn: () => "untouched",
  isNamedInLogs: true,
  traceOf: () => undefined,
  endFilter: ({ asset }) => ({ address: asset, topics: [NO_EVENT] }),
  explainRevert: () => ({
    reason: "unexpected_settle_error",
    message: "The scheme of this payment is not known to this release.",
    isOfState: true,
  }),
  reasonUsed: "unexpected_settle_error",
  reasonExpired: "unexpected_settle_error",
};

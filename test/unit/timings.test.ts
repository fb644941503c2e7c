// Goal: the shipped timeouts agree with one another: leases outlive their renewals, and a callee never waits longer than its caller.
import t from "tap";
import { TIMINGS } from "../../server/core/timings.ts";

/** Stock clients time out after this. */
const CALLERS_GIVE_UP_MS = 30_000;

t.test("a lease outlives two failed renewals", async (t) => {
  t.ok(TIMINGS.laneLeaseMs > 3 * TIMINGS.laneRenewMs);
  t.ok(TIMINGS.watchLeaseMs > 3 * TIMINGS.watchRoundMs);
  t.ok(TIMINGS.reconcileLeaseMs > 3 * TIMINGS.reconcileRoundMs);
});

t.test("jobs that run every minute are planned in time", async (t) => {
  t.ok(TIMINGS.jobPlanMs < 30_000);
});

t.test("a caller is answered before it times out", async (t) => {
  t.ok(TIMINGS.custodyReachMs + TIMINGS.custodyAnswerMs < CALLERS_GIVE_UP_MS / 3);
  t.ok(TIMINGS.fetchRoomMs < CALLERS_GIVE_UP_MS / 2);
  t.ok(TIMINGS.approvalWaitMs < CALLERS_GIVE_UP_MS / 3);
});

t.test("a relay that others may still make is given time", async (t) => {
  t.ok(TIMINGS.resendAfterMs < TIMINGS.refusedForMs, "tried again before it is given up");
  t.ok(TIMINGS.refusedForMs < TIMINGS.giveUpAgainMs);
  t.ok(TIMINGS.reconcileOpenMs < TIMINGS.reconcileAbsentMs, "presence is recorded before absence");
});

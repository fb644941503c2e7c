// Goal: the waiting times that ship agree with one another: leases outlive what renews them, and nobody waits longer than whoever waits for him.
import t from "tap";
import { TIMINGS } from "../../server/core/timings.ts";

/** Stock clients give up after this. */
const CALLERS_GIVE_UP_MS = 30_000;

t.test("a lease outlives two renewals that fail", async (t) => {
  t.ok(TIMINGS.laneLeaseMs > 3 * TIMINGS.laneRenewMs);
  t.ok(TIMINGS.watchLeaseMs > 3 * TIMINGS.watchRoundMs);
  t.ok(TIMINGS.reconcileLeaseMs > 3 * TIMINGS.reconcileRoundMs);
});

t.test("what is asked along with a payment is asked before it is too old", async (t) => {
  t.ok(TIMINGS.chainStatusExtraCallsMs < TIMINGS.chainStatusFreshMs);
});

t.test("what runs every minute is planned in time", async (t) => {
  t.ok(TIMINGS.jobPlanMs < 30_000);
});

t.test("a caller is answered before it gives up", async (t) => {
  t.ok(TIMINGS.custodyReachMs + TIMINGS.custodyAnswerMs < CALLERS_GIVE_UP_MS / 3);
  t.ok(TIMINGS.fetchRoomMs < CALLERS_GIVE_UP_MS / 2);
  t.ok(TIMINGS.approvalWaitMs < CALLERS_GIVE_UP_MS / 3);
});

t.test("a relay that others may still make is given time", async (t) => {
  t.ok(TIMINGS.resendAfterMs < TIMINGS.refusedForMs, "tried again before it is given up");
  t.ok(TIMINGS.refusedForMs < TIMINGS.giveUpAgainMs);
  t.ok(
    TIMINGS.reconcileOpenMs < TIMINGS.reconcileAbsentMs,
    "what is there is believed before what is not",
  );
});

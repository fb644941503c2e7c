// Goal: a cron job is planned for the next minute of its schedule, strictly after now.
import t from "tap";
import { nextMatch } from "../../server/infra/jobs.ts";

const CASES: [schedule: string, now: string, next: string][] = [
  ["* * * * *", "2026-03-01T12:00:00.000Z", "2026-03-01T12:01:00.000Z"],
  ["* * * * *", "2026-03-01T12:00:59.999Z", "2026-03-01T12:01:00.000Z"],
  ["17 * * * *", "2026-03-01T12:16:30.000Z", "2026-03-01T12:17:00.000Z"],
  ["17 * * * *", "2026-03-01T12:17:00.000Z", "2026-03-01T13:17:00.000Z"],
  ["17 3 * * *", "2026-12-31T03:17:00.001Z", "2027-01-01T03:17:00.000Z"],
  ["*/20 6-7 * * *", "2026-03-01T07:40:00.000Z", "2026-03-02T06:00:00.000Z"],
  ["0 0 * * 1", "2026-03-02T00:00:00.000Z", "2026-03-09T00:00:00.000Z"],
  ["0 0 29 2 *", "2026-03-01T00:00:00.000Z", "2028-02-29T00:00:00.000Z"],
];

t.test("the next matching minute", async (t) => {
  for (const [schedule, now, next] of CASES)
    t.equal(
      nextMatch(schedule, Date.parse(now)).toISOString(),
      next,
      `"${schedule}" seen from ${now}`,
    );
});

t.test("a schedule that never matches is an error, not an endless search", async (t) => {
  t.throws(() => nextMatch("0 0 30 2 *", Date.parse("2026-03-01T00:00:00Z")), /matches no minute/);
});

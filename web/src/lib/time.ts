/** With the zone: what is shown here is compared with texts of wallets and with exports, which are in UTC. */
const dateTime = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
});
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
/** Days are in UTC, as in the server's statistics. */
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto", style: "short" });

export const formatDateTime = (iso: string): string => dateTime.format(new Date(iso));

/** 14:20 UTC; on another day with the day. */
export function formatClock(iso: string, nowMs: number): string {
  const time = new Date(iso);
  const isToday = time.toDateString() === new Date(nowMs).toDateString();
  return new Intl.DateTimeFormat("en-GB", {
    ...(!isToday && { day: "numeric", month: "short", year: "numeric" }),
    hour: "2-digit",
    minute: "2-digit",
    timeZoneName: "short",
  }).format(time);
}

/** 3 Nov, of a date or a time. */
export const formatDay = (iso: string): string => day.format(new Date(iso));

/** The labels of a chart's days or hours, the newest last. */
export const labelsOf = (times: readonly string[], unit: "day" | "hour"): string[] =>
  times.map((iso, index) => {
    if (index === times.length - 1) return unit === "day" ? "Today" : "Now";
    return (unit === "day" ? day : clock).format(new Date(iso));
  });

/** The start of a date of a date field (YYYY-MM-DD), or of a later day, in the user's time zone. */
export function startOfDay(date: string, addDays = 0): string | undefined {
  const [year, month, day] = date.split("-").map(Number);
  if (year === undefined || month === undefined || day === undefined) return undefined;
  const time = new Date(year, month - 1, day + addDays);
  return Number.isNaN(time.getTime()) ? undefined : time.toISOString();
}

const STEPS: [limitSeconds: number, divisor: number, unit: Intl.RelativeTimeFormatUnit][] = [
  [60, 1, "second"],
  [3_600, 60, "minute"],
  [86_400, 3_600, "hour"],
  [2_592_000, 86_400, "day"],
  [31_536_000, 2_592_000, "month"],
  [Number.POSITIVE_INFINITY, 31_536_000, "year"],
];

/** For past times; never shown as a future time, even if clocks differ. */
export function formatAgo(iso: string, nowMs: number): string {
  const seconds = Math.min(0, Math.round((Date.parse(iso) - nowMs) / 1000));
  return seconds > -5 ? "just now" : formatSeconds(seconds);
}

/** For future times; once due it is "now", never a past time. */
export function formatUntil(iso: string, nowMs: number): string {
  const seconds = Math.max(0, Math.round((Date.parse(iso) - nowMs) / 1000));
  return seconds === 0 ? "now" : formatSeconds(seconds);
}

function formatSeconds(seconds: number): string {
  const [, divisor, unit] = STEPS.find(([limit]) => Math.abs(seconds) < limit) ?? [0, 1, "second"];
  return relative.format(Math.trunc(seconds / divisor), unit);
}

export function formatDurationMs(durationMs: number): string {
  if (durationMs < 1000) return `${Math.round(durationMs)} ms`;
  return `${(durationMs / 1000).toFixed(durationMs < 10_000 ? 2 : 1)} s`;
}

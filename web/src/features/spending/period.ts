/** Periods in whole UTC days, as the server sums them. */

export const PERIODS = [
  { value: "this-month", label: "This month" },
  { value: "last-month", label: "Last month" },
  { value: "30-days", label: "Last 30 days" },
  { value: "90-days", label: "Last 90 days" },
  { value: "custom", label: "From … to …" },
] as const;
export type Period = (typeof PERIODS)[number]["value"];

export const readPeriod = (text: string): Period =>
  PERIODS.find(({ value }) => value === text)?.value ?? "this-month";

const DAY_MS = 86_400_000;
const isDay = (text: string): boolean =>
  /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(text));
const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

export const addDays = (day: string, days: number): string =>
  dayOf(Date.parse(day) + days * DAY_MS);

/** `to` is the day after the last one. */
export interface Days {
  from: string;
  to: string;
}

/** @param typed the first and the last day of a period of the owner's choice */
export function daysOf(period: Period, typed: Days, nowMs: number): Days {
  const now = new Date(nowMs);
  const tomorrow = addDays(dayOf(nowMs), 1);
  const month = (offset: number): string =>
    dayOf(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + offset, 1));
  if (period === "last-month") return { from: month(-1), to: month(0) };
  if (period === "30-days") return { from: addDays(tomorrow, -30), to: tomorrow };
  if (period === "90-days") return { from: addDays(tomorrow, -90), to: tomorrow };
  if (period === "custom" && isDay(typed.from) && isDay(typed.to) && typed.from <= typed.to)
    return { from: typed.from, to: addDays(typed.to, 1) };
  return { from: month(0), to: tomorrow };
}

/** The most bars that have room. */
const MOST_DAYS = 100;

/** Every day of the period, the oldest first; of a longer one the last hundred. */
export function listDays({ from, to }: Days): string[] {
  const days: string[] = [];
  for (let day = addDays(to, -1); day >= from && days.length < MOST_DAYS; day = addDays(day, -1))
    days.unshift(day);
  return days;
}

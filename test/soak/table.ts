// The report of the soak: the actions, their number, and their outcomes.
import { SKIPPED_FAULTS } from "./faults.ts";
import type { Notes, ReportedOutcome } from "./clients.ts";
import type { Check } from "./reconciliation.ts";

export interface FaultRecord {
  name: string;
  times: number;
  /** The longest time from the end of the fault to the next payment that was reported as paid. */
  silenceMs: number;
}

export interface SoakReport {
  seed: number;
  minutes: number;
  blocks: bigint;
  notes: Notes;
  faults: FaultRecord[];
  checks: Check[];
}

type Row = [what: string, howMany: string, outcome: string];

const SHOWN_WRONG = 10;
const number = (value: number | bigint): string => value.toLocaleString("en-US");
const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;

/** Returns true if reconciliation found no difference. */
export function printReport(report: SoakReport, print: (line: string) => void): boolean {
  const rows = rowsOf(report);
  const widths = [0, 1, 2].map((at) => Math.max(...rows.map((row) => (row[at] ?? "").length)));
  for (const [index, row] of rows.entries()) {
    print(`| ${row.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join(" | ")} |`);
    if (index === 0) print(`| ${widths.map((width) => "-".repeat(width)).join(" | ")} |`);
  }
  const wrong = report.checks.filter((check) => check.wrong.length > 0);
  for (const check of wrong) {
    print(`\n${check.what}:`);
    for (const line of check.wrong.slice(0, SHOWN_WRONG)) print(`  ${line}`);
    if (check.wrong.length > SHOWN_WRONG) print(`  and ${check.wrong.length - SHOWN_WRONG} more`);
  }
  return wrong.length === 0;
}

function rowsOf(report: SoakReport): Row[] {
  const { notes, faults, checks } = report;
  return [
    ["what", "how many", "outcome"],
    ["minutes of load", String(report.minutes), `seed ${report.seed}, ${report.blocks} blocks`],
    outcomeRow("spends", "spend", notes.reported),
    outcomeRow("paid fetches", "x402", notes.reported),
    outcomeRow("withdrawals", "withdrawal", notes.reported),
    outcomeRow("settle requests of third parties", "facilitated", notes.reported),
    ...[...notes.counts].map(([what, count]): Row => [what, number(count), ""]),
    ...faults.map(({ name, times, silenceMs }): Row => [
      `fault: ${name}`,
      number(times),
      `paid again within ${seconds(silenceMs)}`,
    ]),
    ...Object.entries(SKIPPED_FAULTS).map(([name, why]): Row => [
      `fault: ${name}`,
      "0",
      `skipped: ${why}`,
    ]),
    ...checks.map(({ what, looked, wrong }): Row => [
      what,
      number(looked),
      wrong.length === 0 ? "0 wrong" : `${number(wrong.length)} WRONG`,
    ]),
  ];
}

function outcomeRow(
  what: string,
  kind: ReportedOutcome["kind"],
  reported: readonly ReportedOutcome[],
): Row {
  const ones = reported.filter((one) => one.kind === kind);
  const tally = new Map<string, number>();
  for (const { outcome } of ones) tally.set(outcome, (tally.get(outcome) ?? 0) + 1);
  const paid = ones.filter(({ outcome }) => outcome === "paid");
  const took = paid.map(({ tookMs }) => tookMs).sort((left, right) => left - right);
  const at = (share: number): number => took[Math.floor((took.length - 1) * share)] ?? 0;
  const outcomes = [...tally].map(([outcome, count]) => `${number(count)} ${outcome}`).join(", ");
  const times =
    took.length > 0 ? `; paid in p50 ${seconds(at(0.5))}, p95 ${seconds(at(0.95))}` : "";
  return [what, number(ones.length), `${outcomes}${times}`];
}

/** Large numbers become text in JSON. */
export const toJson = (shown: unknown): string =>
  JSON.stringify(
    shown,
    (_key, value: unknown) => (typeof value === "bigint" ? String(value) : value),
    1,
  );

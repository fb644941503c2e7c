// Prints the results as a Markdown table.
import { NAMES, type Figure } from "./context.ts";
import { lostIn } from "./baseline.ts";
import { median } from "./rounds.ts";

export interface Finished {
  name: string;
  result: { figures: Figure[]; load: number } | { error: string };
}

/** `median (least to most)`. */
function spread(samples: readonly number[] | undefined, unit: string): string {
  if (samples === undefined) return "";
  if (samples.some(Number.isNaN)) return "does not";
  const digits = (value: number): string =>
    value.toLocaleString("en-US", { maximumSignificantDigits: Math.abs(value) < 1000 ? 3 : 6 });
  const [least, most] = [Math.min(...samples), Math.max(...samples)];
  const around = least === most ? "" : ` (${digits(least)} to ${digits(most)})`;
  return `${digits(median(samples))}${around} ${unit}`.trim();
}

function lineOf(name: string, figure: Figure, lost: string): string[] {
  const { what, unit, samples, target } = figure;
  return [
    `${name}: ${what}`,
    ...NAMES.map((each) => spread(samples[each], unit)),
    target?.label ?? "",
    target === undefined ? "" : target.isReached ? "yes" : "NO",
    lost,
  ];
}

/** Names each figure, with its regression against the saved figures if there is one. */
export function printTable(rows: readonly Finished[]): void {
  const lines = rows.flatMap(({ name, result }) =>
    "error" in result
      ? [[name, "", "", "failed", "", "", ""]]
      : result.figures.map((figure) => lineOf(name, figure, lostIn(name, figure))),
  );
  const table = [["what", ...NAMES, "target", "reached", "lost"], ...lines];
  // Empty columns are not printed.
  const columns = (table[0] ?? [])
    .map((_, column) => column)
    .filter((column) => lines.some((cells) => cells[column] !== ""));
  const width = (column: number): number =>
    Math.max(...table.map((cells) => cells[column]?.length ?? 0));
  const print = (cells: readonly string[]): void =>
    console.log(
      `| ${columns.map((column) => (cells[column] ?? "").padEnd(width(column))).join(" | ")} |`,
    );
  for (const [index, cells] of table.entries()) {
    print(cells);
    if (index === 0) print(cells.map((_, column) => "-".repeat(width(column))));
  }
}

// The table a person reads, in Markdown so that it can be pasted as it is.
import type { Finished } from "./run.ts";

export function printTable(
  rows: readonly Finished[],
  machine: { cpus: number; model: string; memoryGiB: number; node: string },
): void {
  const lines = rows.map(({ name, target, result }) =>
    "error" in result
      ? [name, "", "failed", "", target, ""]
      : [
          name,
          result.reference,
          result.ours,
          result.ratio === undefined ? "" : `${result.ratio.toFixed(2)}x`,
          target,
          result.reached === undefined ? "" : result.reached ? "yes" : "NO",
        ],
  );
  const table = [["what", "reference", "ours", "ratio", "target", "reached"], ...lines];
  const widths = table[0]?.map((_, column) =>
    Math.max(...table.map((cells) => cells[column]?.length ?? 0)),
  );
  const print = (cells: string[]): void =>
    console.log(
      `| ${cells.map((cell, column) => cell.padEnd(widths?.[column] ?? 0)).join(" | ")} |`,
    );
  console.log(
    `\n${machine.cpus} cores (${machine.model}), ${machine.memoryGiB} GiB, Node ${machine.node}\n`,
  );
  for (const [index, cells] of table.entries()) {
    print(cells);
    if (index === 0) print(cells.map((_, column) => "-".repeat(widths?.[column] ?? 3)));
  }
}

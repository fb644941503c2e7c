// The figures that are committed, by the kind of machine they were measured on: to see what was lost since.
import { readFileSync, writeFileSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { fileURLToPath } from "node:url";
import type { Figure } from "./context.ts";
import { median } from "./rounds.ts";

const FILE = fileURLToPath(new URL("kept.json", import.meta.url));
/** What is less than this is the machine's. */
const LOST_SHARE = 0.1;

export const machine = {
  cpus: cpus().length,
  model: cpus()[0]?.model ?? "unknown",
  memoryGiB: Math.round(totalmem() / 2 ** 30),
  node: process.version,
};
const KIND = `${machine.cpus} x ${machine.model}`;

/** Row, figure, median. */
export type KeptRows = Record<string, Record<string, number>>;
type Kept = Record<string, KeptRows>;

const read = (): Kept => JSON.parse(readFileSync(FILE, "utf8")) as Kept;

/** How much of a figure was lost, where it was more than the tenth that says nothing. */
export function lostIn(
  row: string,
  { what, better, samples }: Figure,
  rows: KeptRows | undefined = read()[KIND],
): string {
  const kept = rows?.[row]?.[what];
  if (kept === undefined || kept === 0) return "";
  const now = median(samples.ours);
  const lost = better === "less" ? now / kept - 1 : 1 - now / kept;
  return lost > LOST_SHARE ? `${(lost * 100).toFixed(0)} % (was ${kept})` : "";
}

export function keep(rows: readonly { name: string; figures: readonly Figure[] }[]): void {
  const kept = read();
  const mine = (kept[KIND] ??= {});
  for (const { name, figures } of rows)
    mine[name] = Object.fromEntries(
      figures.map(({ what, samples }) => [what, Number(median(samples.ours).toPrecision(4))]),
    );
  writeFileSync(FILE, `${JSON.stringify(kept, null, 2)}\n`);
}

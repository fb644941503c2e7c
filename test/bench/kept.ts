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

/** Medians: of ours, and of the reference that was measured with it. */
interface KeptFigure {
  ours: number;
  reference?: number;
}
/** Row, figure. */
export type KeptRows = Record<string, Record<string, KeptFigure>>;
type Kept = Record<string, KeptRows>;

const read = (): Kept => JSON.parse(readFileSync(FILE, "utf8")) as Kept;
const rounded = (value: number): number => Number(value.toPrecision(4));

function mediansOf({ samples }: Pick<Figure, "samples">): KeptFigure {
  const reference = median(samples.reference ?? []);
  return {
    ours: rounded(median(samples.ours)),
    // Nothing to compare with where it does not do this at all, or does it for nothing.
    ...(reference > 0 && { reference: rounded(reference) }),
  };
}

/**
 * How much of a figure was lost, where it was more than the tenth that says nothing: beside the reference where it was
 * measured both times, for a machine is not as fast every day. What waits for blocks must be worse by itself as well.
 */
export function lostIn(
  row: string,
  { what, better, waits, samples }: Figure,
  rows: KeptRows | undefined = read()[KIND],
): string {
  const kept = rows?.[row]?.[what];
  if (kept === undefined || kept.ours === 0) return "";
  const now = mediansOf({ samples });
  const isBeside = kept.reference !== undefined && now.reference !== undefined;
  const worse = (was: number, is: number): number =>
    better === "less" ? is / was - 1 : 1 - is / was;
  const beside = ({ ours, reference = 1 }: KeptFigure): number =>
    isBeside ? ours / reference : ours;
  const lost = worse(beside(kept), beside(now));
  if (!(lost > LOST_SHARE) || (waits && !(worse(kept.ours, now.ours) > LOST_SHARE))) return "";
  const before = isBeside ? `${Number(beside(kept).toPrecision(3))}x reference` : `${kept.ours}`;
  return `${(lost * 100).toFixed(0)} % (was ${before})`;
}

export function keep(rows: readonly { name: string; figures: readonly Figure[] }[]): void {
  const kept = read();
  const mine = (kept[KIND] ??= {});
  for (const { name, figures } of rows)
    mine[name] = Object.fromEntries(figures.map((figure) => [figure.what, mediansOf(figure)]));
  writeFileSync(FILE, `${JSON.stringify(kept, null, 2)}\n`);
}

// The committed reference figures, by type of machine, to detect regressions.
import { readFileSync, writeFileSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import { fileURLToPath } from "node:url";
import type { Figure } from "./context.ts";
import { median } from "./rounds.ts";

const FILE = fileURLToPath(new URL("baseline.json", import.meta.url));
/** Smaller changes are within the noise of the machine. */
const LOST_SHARE = 0.1;

export const machine = {
  cpus: cpus().length,
  model: cpus()[0]?.model ?? "unknown",
  memoryGiB: Math.round(totalmem() / 2 ** 30),
  node: process.version,
};
const KIND = `${machine.cpus} x ${machine.model}`;

/** Medians: of our server, and of the reference measured with it. */
interface KeptFigure {
  ours: number;
  reference?: number;
}
/** By row, then figure. */
type KeptRows = Record<string, Record<string, KeptFigure>>;
type Kept = Record<string, KeptRows>;

const read = (): Kept => JSON.parse(readFileSync(FILE, "utf8")) as Kept;
const rounded = (value: number): number => Number(value.toPrecision(4));

function mediansOf({ samples }: Pick<Figure, "samples">): KeptFigure {
  const reference = median(samples.reference ?? []);
  return {
    ours: rounded(median(samples.ours)),
    // Without a value where the reference does not support this, or its figure is zero.
    ...(reference > 0 && { reference: rounded(reference) }),
  };
}

/**
 * The regression of a figure, if it is more than a tenth: relative to the reference where both were measured,
 * because a machine's speed varies. A figure that depends on blocks must also be worse by itself.
 */
export function lostIn(
  row: string,
  { what, better, waits, samples }: Figure,
  rows: KeptRows | undefined = read()[KIND],
): string {
  const kept = rows?.[row]?.[what];
  if (kept === undefined || kept.ours === 0) return "";
  const now = mediansOf({ samples });
  const isRelative = kept.reference !== undefined && now.reference !== undefined;
  const worse = (was: number, is: number): number =>
    better === "less" ? is / was - 1 : 1 - is / was;
  const relative = ({ ours, reference = 1 }: KeptFigure): number =>
    isRelative ? ours / reference : ours;
  const lost = worse(relative(kept), relative(now));
  if (!(lost > LOST_SHARE) || (waits && !(worse(kept.ours, now.ours) > LOST_SHARE))) return "";
  const before = isRelative
    ? `${Number(relative(kept).toPrecision(3))}x reference`
    : `${kept.ours}`;
  return `${(lost * 100).toFixed(0)} % (was ${before})`;
}

export function keep(rows: readonly { name: string; figures: readonly Figure[] }[]): void {
  const kept = read();
  const mine = (kept[KIND] ??= {});
  for (const { name, figures } of rows)
    mine[name] = Object.fromEntries(figures.map((figure) => [figure.what, mediansOf(figure)]));
  writeFileSync(FILE, `${JSON.stringify(kept, null, 2)}\n`);
}

/** The operator's list of addresses: its text is read whole or not at all. */
import { setImmediate as nextTurn } from "node:timers/promises";
import { ScreeningFailed } from "./source.ts";

export interface AddressList {
  /** In lower case. */
  addresses: ReadonlySet<string>;
  /** Named by its first line. */
  date: Date | undefined;
}

const ADDRESS = /^0x[0-9a-f]{40}$/;
const DATE = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,3})?)?Z)?$/;
/** The clocks of the list's publisher and of this machine differ by less. */
const DAY_MS = 86_400_000;
const MOST_ADDRESSES = 1_000_000;
/** Other requests get their turn after so many lines. */
const LINES_PER_TURN = 5_000;

export async function readList(text: string, nowMs: number): Promise<AddressList> {
  const lines = text.replace(/^\uFEFF/, "").split(/\r?\n/);
  const date = dateIn(lines[0] ?? "", nowMs);
  const addresses = new Set<string>();
  for (let at = date ? 1 : 0; at < lines.length; at += 1) {
    if (at % LINES_PER_TURN === LINES_PER_TURN - 1) await nextTurn();
    const [content = ""] = (lines[at] ?? "").split("#", 1);
    const address = content.trim().toLowerCase();
    if (address === "") continue;
    if (!ADDRESS.test(address)) throw new ScreeningFailed(`line ${at + 1} is not an address`);
    addresses.add(address);
    if (addresses.size > MOST_ADDRESSES)
      throw new ScreeningFailed(`the list has more than ${MOST_ADDRESSES} addresses`);
  }
  // An empty file is more often a failed download than an empty list.
  if (addresses.size === 0 && !date)
    throw new ScreeningFailed("the list has no address, and no date that says so on purpose");
  return { addresses, date };
}

function dateIn(line: string, nowMs: number): Date | undefined {
  const text = line.trim();
  if (!DATE.test(text)) return undefined;
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) throw new ScreeningFailed("line 1 is not a date");
  if (date.getTime() > nowMs + DAY_MS) throw new ScreeningFailed("its date is in the future");
  return date;
}

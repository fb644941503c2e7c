import { checkAddress } from "../../lib/address.ts";
import type { AllowlistDraft } from "./rules.ts";

interface PastedLine {
  line: number;
  text: string;
  reason: string;
}

export interface PasteResult {
  entries: AllowlistDraft[];
  problems: PastedLine[];
  repeated: number;
}

const ADDRESS = /0x[0-9a-fA-F]{6,}/;

/** Parses lines such as `0x…`, `0x… Weather API`, `Weather API, 0x…`, also copied from a spreadsheet. */
export async function parseAllowlist(
  text: string,
  known: readonly AllowlistDraft[],
): Promise<PasteResult> {
  const seen = new Set(known.map(({ address }) => address.toLowerCase()));
  const result: PasteResult = { entries: [], problems: [], repeated: 0 };
  for (const [index, raw] of text.split(/\r?\n/).entries()) {
    const line = raw.trim();
    if (line === "" || line.startsWith("#")) continue;
    const found = ADDRESS.exec(line)?.[0];
    const check = await checkAddress(found ?? line);
    if (!check.ok) {
      result.problems.push({ line: index + 1, text: line, reason: check.reason });
      continue;
    }
    if (seen.has(check.address.toLowerCase())) {
      result.repeated += 1;
      continue;
    }
    seen.add(check.address.toLowerCase());
    const label = line.replace(found ?? "", "").replaceAll(/^[\s,;:"'\-–]+|[\s,;:"'\-–]+$/g, "");
    result.entries.push({ address: check.address, label: label.slice(0, 80) });
  }
  return result;
}

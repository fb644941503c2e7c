/** Verifies an audit export and reports in one line: for `npm run audit:verify`, and for the script in docs/how-to. */
import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { readLine, verifyChain, type ChainHead, type ChainRow, type Verdict } from "./verify.ts";

export type Print = (line: string) => void;

/** False if the chain is not valid. */
export async function verifyFile(path: string, noted: ChainHead[], say: Print): Promise<boolean> {
  const unreadable: number[] = [];
  async function* rows(): AsyncGenerator<ChainRow> {
    let number = 0;
    for await (const line of createInterface({ input: createReadStream(path) })) {
      number += 1;
      const row = readLine(line);
      if (row) yield row;
      else unreadable.push(number);
    }
  }
  const verdict = await verifyChain(rows(), noted);
  const [line] = unreadable;
  if (line === undefined) return report(path, verdict, say);
  say(`FAILED ${path}: line ${line} is no line of an audit's export`);
  return false;
}

export function report(whose: string, verdict: Verdict, say: Print): boolean {
  if (!verdict.ok) say(`FAILED ${whose}: entry ${verdict.seq} ${verdict.why}`);
  else {
    const { head, signatures, byContract } = verdict;
    const unchecked =
      byContract === 0
        ? ""
        : `, ${byContract} by contracts or passkeys of other records not recomputed`;
    say(`ok ${whose}: ${head.seq} entries, ${signatures} signatures${unchecked}`);
    say(`   head ${head.seq}:${head.hash}`);
  }
  return verdict.ok;
}

/** Parses `<seq>:<hash of 64 hex digits>`; undefined for anything else. */
export function readHead(text: string): ChainHead | undefined {
  const [, seq, hash] = /^(\d{1,15}):([0-9a-f]{64})$/.exec(text) ?? [];
  return seq === undefined || hash === undefined ? undefined : { seq: Number(seq), hash };
}

/**
 * Verifies the audit log's hash chain in this browser: each entry has the hash of its text and refers to the
 * entry before. The end of the verified chain is stored here, out of reach of anybody who could rewrite the
 * service's database, and the next check starts there.
 */
import { queryOptions } from "@tanstack/react-query";
import { send } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { AuditLine } from "../../lib/wire.ts";

export interface ChainEnd {
  seq: number;
  hash: string;
}

type ChainState = { ok: true; end: ChainEnd } | { ok: false; seq: number; why: string };

const START: ChainEnd = { seq: 0, hash: "0".repeat(64) };
const slot = (address: string): string => `purser-audit:${address.toLowerCase()}`;

export const chainQuery = (address: string) =>
  queryOptions({
    queryKey: keys.auditChain,
    queryFn: async ({ signal }): Promise<ChainState> => {
      const known = recall(address);
      // The last verified entry is read again: if it differs or is missing, the log was changed.
      const lines = await readLines(Math.max(0, known.seq - 1), signal);
      const state = await follow(lines, known);
      if (state.ok) remember(address, state.end);
      return state;
    },
  });

/** The complete log, for a download. */
export async function downloadChain(): Promise<Blob> {
  return (await send("GET", "/api/audit/export", { accept: "application/x-ndjson" })).blob();
}

async function readLines(after: number, signal: AbortSignal): Promise<AuditLine[]> {
  const answer = await send("GET", "/api/audit/export", {
    accept: "application/x-ndjson",
    query: { after },
    signal,
  });
  const text = await answer.text();
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as AuditLine);
}

async function follow(lines: readonly AuditLine[], known: ChainEnd): Promise<ChainState> {
  const [first] = lines;
  if (known.seq > 0 && first?.seq !== known.seq)
    return {
      ok: false,
      seq: known.seq,
      why: "existed at the last check of this browser and is now missing",
    };
  if (known.seq > 0 && first?.hash !== known.hash)
    return { ok: false, seq: known.seq, why: "differs from the one this browser checked before" };
  let end = known.seq > 0 ? { seq: known.seq - 1, hash: first?.prevHash ?? "" } : START;
  for (const line of lines) {
    const seq = end.seq + 1;
    if (line.seq !== seq) return { ok: false, seq, why: "is missing" };
    if (line.prevHash !== end.hash)
      return { ok: false, seq, why: "does not match the hash of the entry before it" };
    if ((await hashOf(line)) !== line.hash)
      return { ok: false, seq, why: "does not match its own hash" };
    end = { seq, hash: line.hash };
  }
  return { ok: true, end };
}

async function hashOf({ prevHash, body }: AuditLine): Promise<string> {
  const before = Uint8Array.from(prevHash.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
  const text = new TextEncoder().encode(body);
  const bytes = new Uint8Array(before.length + text.length);
  bytes.set(before);
  bytes.set(text, before.length);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function recall(address: string): ChainEnd {
  try {
    const [, seq, hash] =
      /^(\d+):([0-9a-f]{64})$/.exec(localStorage.getItem(slot(address)) ?? "") ?? [];
    return seq === undefined || hash === undefined ? START : { seq: Number(seq), hash };
  } catch {
    return START;
  }
}

function remember(address: string, { seq, hash }: ChainEnd): void {
  try {
    localStorage.setItem(slot(address), `${seq}:${hash}`);
  } catch {
    // A browser without storage verifies from the start each time.
  }
}

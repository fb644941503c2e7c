/**
 * Cells: whole deployments of this service, each on its own Postgres with its own gas accounts. They share nothing but
 * this list. A third party's payment belongs to the cell that its payer's address names, so that one database decides
 * about it, wherever it was posted.
 */
import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import { ApiError } from "../errors.ts";
import { hasTwice, listed, originOf, valid } from "./setting.ts";

export interface Cell {
  readonly id: string;
  /** Where the other cells reach it. */
  readonly url: string;
  /** It takes payments whose signature ends at or after this second, and before `untilSeconds`. */
  readonly fromSeconds: bigint;
  readonly untilSeconds: bigint;
}

/** The digit keeps a cell's keys apart from the other kinds of secrets (plugins/auth/secrets.ts). */
export const CELL_ID = /^[a-z]{1,6}[0-9]{1,3}$/;
const ENTRY = /^([a-z]{1,6}[0-9]{1,3})=([^@]+)(?:@([0-9]{1,12})?(?:\.\.([0-9]{1,12}))?)?$/;
const FOREVER = 2n ** 256n;

/** `c1=http://10.0.0.1:3000,c2=http://10.0.0.2:3000@1790000000` */
export function readCells(text: string): Cell[] {
  const cells: Cell[] = [];
  const reasons: string[] = [];
  for (const entry of listed(text)) {
    const [, id, place = "", from = "0", until] = ENTRY.exec(entry) ?? [];
    const url = originOf(place);
    const cell = id !== undefined && url !== undefined && cellOf(id, url, from, until);
    if (cell) cells.push(cell);
    else reasons.push(`has "${entry}"; it lists id=origin, or id=origin@from..until in seconds`);
  }
  if (hasTwice(cells.map(({ id }) => id))) reasons.push("names a cell twice");
  if (hasTwice(cells.map(({ url }) => url))) reasons.push("has an origin twice");
  if (cells.length > 0 && cells.every(({ untilSeconds }) => untilSeconds < FOREVER))
    reasons.push("has no cell that stays");
  return valid(cells, reasons);
}

function cellOf(id: string, url: string, from: string, until: string | undefined): Cell | false {
  const fromSeconds = BigInt(from);
  const untilSeconds = until === undefined ? FOREVER : BigInt(until);
  return fromSeconds < untilSeconds && { id, url, fromSeconds, untilSeconds };
}

/**
 * The cell of a payer: the one with the largest hash (rendezvous hashing), so that a new cell takes its share from
 * each of the others and moves nobody between them. Which cells there are depends on when the signature ends, not on
 * the clock: every request for one signature has the same answer, also while the list is being changed.
 */
export function cellOfPayer(
  cells: readonly Cell[],
  payer: string,
  endsAtSeconds: bigint,
): Cell | undefined {
  const open = cells.filter(
    ({ fromSeconds, untilSeconds }) => fromSeconds <= endsAtSeconds && endsAtSeconds < untilSeconds,
  );
  // Where the list leaves a gap, all cells must still name the same one.
  return highest(open.length > 0 ? open : cells, payer);
}

/**
 * Whether the list gives this payer to more than one cell, depending on when its signature ends. Such a payer could sign
 * the same transfer twice, with one nonce and two ends, for two cells.
 */
export function hasSeveralCells(cells: readonly Cell[], payer: string): boolean {
  const changes = cells.flatMap(({ fromSeconds, untilSeconds }) => [fromSeconds, untilSeconds]);
  const found = new Set(changes.map((at) => cellOfPayer(cells, payer, at)?.id));
  found.delete(undefined);
  return found.size > 1;
}

/** Whether this payer's signatures belong to this cell, whenever they end from this second on. */
export function isPayerOf(
  cells: readonly Cell[],
  id: string,
  { payer, fromSeconds }: { payer: string; fromSeconds: bigint },
): boolean {
  const changes = cells
    .flatMap((cell) => [cell.fromSeconds, cell.untilSeconds])
    .filter((at) => at > fromSeconds && at < FOREVER);
  return [fromSeconds, ...changes].every((at) => cellOfPayer(cells, payer, at)?.id === id);
}

function highest(cells: readonly Cell[], address: string): Cell | undefined {
  const weighed = cells.map((cell) => ({ cell, weight: weightOf(cell, address) }));
  weighed.sort((left, right) => Buffer.compare(right.weight, left.weight));
  return weighed[0]?.cell;
}

const weightOf = ({ id }: Cell, address: string): Buffer =>
  createHash("sha256").update(`${id}|${address.toLowerCase()}`).digest();

/** How long a request between cells is believed: their clocks may differ by less. */
export const FORWARD_SECONDS = 60;

/** What one cell says to another, so that nobody else can say it. */
export interface Forward {
  from: string;
  to: string;
  sentAtSeconds: number;
  path: string;
  /** SHA-256 of the body's JSON, in hex. */
  bodyHash: string;
}

export const hashBody = (body: unknown): string =>
  createHash("sha256")
    .update(JSON.stringify(body) ?? "")
    .digest("hex");

/** `v1 <from> <seconds> <hash of the body> <signature>` */
export const signForward = (secret: string, forward: Forward): string =>
  `v1 ${forward.from} ${forward.sentAtSeconds} ${forward.bodyHash} ${macOf(secret, forward)}`;

const FORWARD = /^v1 ([a-z0-9]{2,9}) ([0-9]{1,12}) ([0-9a-f]{64}) ([0-9a-f]{64})$/;

/** Undefined if none of our cells sent it, not to this one, not to this path, or too long ago. */
export function readForward(
  header: unknown,
  { to, path }: Pick<Forward, "to" | "path">,
  { secret, nowSeconds }: { secret: string; nowSeconds: number },
): Pick<Forward, "from" | "bodyHash"> | undefined {
  const [, from, sent = "", bodyHash = "", mac = ""] = FORWARD.exec(String(header)) ?? [];
  if (from === undefined) return undefined;
  const sentAtSeconds = Number(sent);
  const wanted = macOf(secret, { from, to, sentAtSeconds, path, bodyHash });
  const isOurs = timingSafeEqual(Buffer.from(mac, "hex"), Buffer.from(wanted, "hex"));
  const isFresh = Math.abs(nowSeconds - sentAtSeconds) <= FORWARD_SECONDS;
  return isOurs && isFresh ? { from, bodyHash } : undefined;
}

function macOf(secret: string, { from, to, sentAtSeconds, path, bodyHash }: Forward): string {
  return createHmac("sha256", secret)
    .update(JSON.stringify(["purser forward 1", from, to, sentAtSeconds, path, bodyHash]))
    .digest("hex");
}

/** Throws unless the body is the one that the other cell signed. */
export function assertForwarded(forward: { bodyHash: string }, body: unknown): void {
  if (hashBody(body) !== forward.bodyHash) throw new ApiError("not_found");
}

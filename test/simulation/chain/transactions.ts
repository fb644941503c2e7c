/** Signed transactions: parsed from their bytes, with the sender recovered from the signature. */
import type { Hex } from "viem";
import { hash, recover } from "./signatures.ts";

export interface Transaction {
  hash: Hex;
  raw: Hex | undefined;
  type: 0 | 1 | 2;
  from: Hex;
  nonce: number;
  to: Hex | null;
  value: bigint;
  input: Hex;
  gas: number;
  maxFeeWei: bigint;
  priorityFeeWei: bigint;
  chainId: number | undefined;
}

type Item = { digits: string } | { items: Item[] };

/** Undefined if these are not the bytes of a signed transaction. */
export function parseRaw(raw: Hex): Transaction | undefined {
  try {
    const digits = raw.slice(2).toLowerCase();
    const type = Number.parseInt(digits.slice(0, 2), 16);
    if (type === 1 || type === 2) return parseTyped(digits, type);
    return parseLegacy(digits);
  } catch (error) {
    if (error instanceof RangeError || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function parseTyped(digits: string, type: 1 | 2): Transaction | undefined {
  const fields = listOf(digits.slice(2));
  const signed = type === 2 ? 9 : 8;
  if (fields.length !== signed + 3) return undefined;
  const text = (index: number): string => textOf(fields[index]);
  const fee = type === 2 ? 3 : 2;
  const unsigned = `0${type}${encodeList(fields.slice(0, signed))}`;
  const from = recover(
    hash(unsigned),
    text(signed + 1).padStart(64, "0"),
    text(signed + 2).padStart(64, "0"),
    27 + numberOf(text(signed)),
  );
  if (!from) return undefined;
  return {
    hash: `0x${hash(digits)}`,
    raw: `0x${digits}`,
    type,
    from,
    chainId: numberOf(text(0)),
    nonce: numberOf(text(1)),
    priorityFeeWei: bigOf(text(2)),
    maxFeeWei: bigOf(text(fee)),
    gas: numberOf(text(fee + 1)),
    to: addressOf(text(fee + 2)),
    value: bigOf(text(fee + 3)),
    input: `0x${text(fee + 4)}`,
  };
}

function parseLegacy(digits: string): Transaction | undefined {
  const fields = listOf(digits);
  if (fields.length !== 9) return undefined;
  const text = (index: number): string => textOf(fields[index]);
  const v = numberOf(text(6));
  const chainId = v >= 35 ? Math.floor((v - 35) / 2) : undefined;
  const tail = chainId === undefined ? [] : [{ digits: evenHex(chainId) }, EMPTY, EMPTY];
  const parity = chainId === undefined ? v - 27 : (v - 35) % 2;
  const from = recover(
    hash(encodeList([...fields.slice(0, 6), ...tail])),
    text(7).padStart(64, "0"),
    text(8).padStart(64, "0"),
    27 + parity,
  );
  if (!from) return undefined;
  const gasPrice = bigOf(text(1));
  return {
    hash: `0x${hash(digits)}`,
    raw: `0x${digits}`,
    type: 0,
    from,
    chainId,
    nonce: numberOf(text(0)),
    priorityFeeWei: gasPrice,
    maxFeeWei: gasPrice,
    gas: numberOf(text(2)),
    to: addressOf(text(3)),
    value: bigOf(text(4)),
    input: `0x${text(5)}`,
  };
}

const EMPTY: Item = { digits: "" };

function textOf(item: Item | undefined): string {
  if (!item || !("digits" in item)) throw new RangeError("not a text");
  return item.digits;
}
const bigOf = (digits: string): bigint => (digits === "" ? 0n : BigInt(`0x${digits}`));
const numberOf = (digits: string): number => Number(bigOf(digits));
function addressOf(digits: string): Hex | null {
  if (digits !== "" && digits.length !== 40) throw new RangeError("not an address");
  return digits === "" ? null : `0x${digits}`;
}
function evenHex(value: number): string {
  const digits = value.toString(16);
  return digits.length % 2 === 0 ? digits : `0${digits}`;
}

// RLP, of hexadecimal digits.

function listOf(digits: string): Item[] {
  const { item, end } = readItem(digits, 0);
  if (!("items" in item) || end !== digits.length) throw new RangeError("not a list");
  return item.items;
}

function readItem(digits: string, at: number): { item: Item; end: number } {
  const first = Number.parseInt(digits.slice(at, at + 2), 16);
  if (Number.isNaN(first)) throw new RangeError("too short");
  if (first < 0x80) return { item: { digits: digits.slice(at, at + 2) }, end: at + 2 };
  const isList = first >= 0xc0;
  const short = first - (isList ? 0xc0 : 0x80);
  const lengthChars = short > 55 ? (short - 55) * 2 : 0;
  const start = at + 2 + lengthChars;
  const length =
    short > 55 ? Number.parseInt(digits.slice(at + 2, start), 16) * 2 : Math.max(short, 0) * 2;
  const end = start + length;
  if (!(end <= digits.length)) throw new RangeError("too short");
  if (!isList) return { item: { digits: digits.slice(start, end) }, end };
  const items: Item[] = [];
  let next = start;
  while (next < end) {
    const read = readItem(digits, next);
    items.push(read.item);
    next = read.end;
  }
  if (next !== end) throw new RangeError("wrong length");
  return { item: { items }, end };
}

function encodeList(items: readonly Item[]): string {
  let body = "";
  for (const item of items)
    body += "items" in item ? encodeList(item.items) : encodeText(item.digits);
  return prefix(body.length / 2, 0xc0) + body;
}

function encodeText(digits: string): string {
  if (digits.length === 2 && Number.parseInt(digits, 16) < 0x80) return digits;
  return prefix(digits.length / 2, 0x80) + digits;
}

function prefix(length: number, base: number): string {
  if (length <= 55) return evenHex(base + length);
  const size = evenHex(length);
  return evenHex(base + 55 + size.length / 2) + size;
}

/** EIP-2028 and EIP-7623: calldata by the byte, and the least that a transaction costs for it. */
export function intrinsicGas({ input, to }: Pick<Transaction, "input" | "to">): {
  gas: number;
  floor: number;
} {
  let zeros = 0;
  for (let at = 2; at < input.length; at += 2)
    if (input.charCodeAt(at) === 48 && input.charCodeAt(at + 1) === 48) zeros += 1;
  const others = (input.length - 2) / 2 - zeros;
  return {
    gas: 21_000 + 4 * zeros + 16 * others + (to === null ? 32_000 : 0),
    floor: 21_000 + 10 * zeros + 40 * others,
  };
}

import { loadPart } from "./reachable.ts";

const SHAPE = /^0x[0-9a-fA-F]{40}$/;

export const shortAddress = (address: string): string =>
  `${address.slice(0, 6)}…${address.slice(-4)}`;

export const isSameAddress = (
  left: string | null | undefined,
  right: string | null | undefined,
): boolean =>
  typeof left === "string" &&
  typeof right === "string" &&
  left.toLowerCase() === right.toLowerCase();

type AddressCheck = { ok: true; address: `0x${string}` } | { ok: false; reason: string };

/** Loads the hash function only when an address is typed. */
export async function checkAddress(text: string): Promise<AddressCheck> {
  const trimmed = text.trim();
  if (!SHAPE.test(trimmed))
    return { ok: false, reason: "An address is 0x followed by 40 hexadecimal digits." };
  if (/^0x0{40}$/.test(trimmed))
    return { ok: false, reason: "The zero address cannot receive payments." };
  const part = await loadPart(() => import("./checksum.ts")).catch(() => undefined);
  if (!part)
    return { ok: false, reason: "The address could not be checked. Try again in a moment." };
  const { checksum } = part;
  const address = checksum(trimmed);
  const digits = trimmed.slice(2);
  const isOneCase = digits === digits.toLowerCase() || digits === digits.toUpperCase();
  if (!isOneCase && address !== trimmed) {
    return {
      ok: false,
      reason: "The checksum does not match: a character is wrong or in the wrong case.",
    };
  }
  return { ok: true, address };
}

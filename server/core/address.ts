import { getAddress, type Address } from "viem";

export type ParsedAddress = { ok: true; address: Address } | { ok: false; reason: string };

const ZERO_ADDRESS = "0x0000000000000000000000000000000000000000";

/**
 * Reads an address a person or program wrote. Answers it in lower case, as the database keeps it.
 * Mixed case is a checksum (EIP-55) and must be right: a typo there would send money to nobody.
 */
export function parseAddress(text: unknown): ParsedAddress {
  if (typeof text !== "string" || !/^0x[0-9a-fA-F]{40}$/.test(text))
    return { ok: false, reason: "must be 0x and 40 hexadecimal digits" };
  const digits = text.slice(2);
  const lower = text.toLowerCase() as Address;
  const isMixed = digits !== digits.toLowerCase() && digits !== digits.toUpperCase();
  if (isMixed && getAddress(lower) !== text)
    return { ok: false, reason: "has a wrong checksum; copy it again, or write it in lower case" };
  if (lower === ZERO_ADDRESS) return { ok: false, reason: "is the zero address; nobody owns it" };
  return { ok: true, address: lower };
}

import type { Address } from "../wire.ts";
import type { Connection } from "./connection.ts";

const LIFETIME_MS = 10 * 60_000;

/** An EIP-4361 message. The preview shows exactly this text, as the wallet does. */
export function siweMessage(facts: {
  host: string;
  origin: string;
  address: Address;
  chainId: number;
  nonce: string;
  nowMs: number;
}): string {
  return [
    `${facts.host} wants you to sign in with your Ethereum account:`,
    facts.address,
    "",
    "Sign in to Purser to manage your agents.",
    "",
    `URI: ${facts.origin}`,
    "Version: 1",
    `Chain ID: ${facts.chainId}`,
    `Nonce: ${facts.nonce}`,
    `Issued At: ${new Date(facts.nowMs).toISOString()}`,
    `Expiration Time: ${new Date(facts.nowMs + LIFETIME_MS).toISOString()}`,
  ].join("\n");
}

const toHex = (text: string): string =>
  `0x${Array.from(new TextEncoder().encode(text), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;

export async function signMessage(
  { provider, address }: Connection,
  message: string,
): Promise<string> {
  return String(
    await provider.request({ method: "personal_sign", params: [toHex(message), address] }),
  );
}

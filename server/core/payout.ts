/** The address to which an owner with passkeys withdraws: the first is in force at once, another one a day after it was signed. */
import type { Address } from "viem";
import type { PayoutAddressOrder } from "../../packages/rules/src/orders.ts";

export const PAYOUT_WAIT_SECONDS = 24 * 60 * 60;

export interface Payout {
  address: Address;
  /** When it came into force; missing for the first one, which no signed time decides. */
  sinceSeconds?: bigint;
  /** Another one that waits. */
  next: { address: Address; fromSeconds: bigint } | null;
}

/**
 * `orders`: all that the owner signed. Their versions and deadlines decide, because they are signed. A newer order replaces one
 * that still waits; naming the address in force again takes back what waits. Undefined if there is none, or one is missing.
 */
export function payoutAt(
  orders: readonly Pick<PayoutAddressOrder, "version" | "payout" | "deadline">[],
  nowSeconds: bigint,
): Payout | undefined {
  const inOrder = orders.toSorted((a, b) => Number(a.version) - Number(b.version));
  if (inOrder.some(({ version }, index) => version !== String(index + 1))) return undefined;
  let found: Payout | undefined;
  for (const { payout, deadline } of inOrder) {
    const address = payout.toLowerCase() as Address;
    const current = found && settled(found, BigInt(deadline));
    const fromSeconds = BigInt(deadline) + BigInt(PAYOUT_WAIT_SECONDS);
    const isWaiting = current !== undefined && current.address !== address;
    found = { ...(current ?? { address }), next: isWaiting ? { address, fromSeconds } : null };
  }
  return found && settled(found, nowSeconds);
}

const settled = (payout: Payout, nowSeconds: bigint): Payout =>
  payout.next && payout.next.fromSeconds <= nowSeconds
    ? { address: payout.next.address, sinceSeconds: payout.next.fromSeconds, next: null }
    : payout;

/**
 * The chain's word on an authorization that a seller says it has used. The seller's receipt only tells
 * where to look: at once, and a few times soon after (our node may be a block behind the seller's),
 * while the engine watches the authorization anyway.
 */
import type { Hex } from "viem";
import type { SettlementOutcome } from "../settlement/types.ts";
import type { ClientParts } from "./types.ts";

const LOOK_AFTER_MS = [100, 300, 700];

export async function confirmOnChain(
  { settlement, settleWaitMs, log }: Pick<ClientParts, "settlement" | "settleWaitMs" | "log">,
  payment: { id: string; chainId: number; txHash?: Hex },
): Promise<SettlementOutcome> {
  const look = (): void =>
    void settlement.look(payment).catch((error: unknown) =>
      // The engine's own rounds go on, and the wait below ends in time.
      log.warn({ err: error, paymentId: payment.id }, "could not look for a payment on chain"),
    );
  look();
  const timers = LOOK_AFTER_MS.map((afterMs) => setTimeout(look, afterMs));
  try {
    return await settlement.wait(payment.id, settleWaitMs);
  } finally {
    for (const timer of timers) clearTimeout(timer);
  }
}

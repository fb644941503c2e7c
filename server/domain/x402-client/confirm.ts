/**
 * The chain's word on an authorization that a seller says it has used. The seller's receipt names a
 * transaction, but the authorization itself finds its own: we ask the chain for it at once, and a few
 * times soon after (our node may be a block behind the seller's), while the engine watches it anyway.
 */
import type { SettlementOutcome } from "../settlement/types.ts";
import type { ClientParts } from "./types.ts";

const LOOK_AFTER_MS = [0, 100, 300, 700];

export async function confirmOnChain(
  { settlement, settleWaitMs, log }: Pick<ClientParts, "settlement" | "settleWaitMs" | "log">,
  paymentId: string,
): Promise<SettlementOutcome> {
  let isDecided = false;
  const look = (): void => {
    if (isDecided) return;
    settlement.look(paymentId).catch((error: unknown) =>
      // The engine's own rounds go on, and the wait below ends in time.
      log.warn({ err: error, paymentId }, "could not look for a payment on chain"),
    );
  };
  const timers = LOOK_AFTER_MS.map((afterMs) => setTimeout(look, afterMs));
  try {
    return await settlement.wait(paymentId, settleWaitMs);
  } finally {
    isDecided = true;
    for (const timer of timers) clearTimeout(timer);
  }
}

/** Hands signed payments that are ready at the same moment to the engine in one transaction. */
import { Coalescer } from "../../adapters/chain/coalescer.ts";
import type { SettlementRequest } from "../settlement/types.ts";

interface Accepted {
  created: boolean;
}

const GROUPS = { maxBatch: 64, maxInFlight: 2 };

/** `acceptAll` answers in the order of its requests, all or nothing. */
export function acceptInGroups(
  acceptAll: (requests: SettlementRequest[]) => Promise<Accepted[]>,
  isReservationGone: (error: unknown) => boolean,
): (request: SettlementRequest) => Promise<Accepted> {
  const groups = new Coalescer<SettlementRequest, PromiseSettledResult<Accepted>>(
    async (requests) => {
      try {
        return (await acceptAll(requests)).map((value) => ({ status: "fulfilled", value }));
      } catch (error) {
        // One whose reservation is gone takes its group back with it; nothing of it was written. The others
        // go by themselves. After any other error that is not certain, and nobody may try again here.
        if (!isReservationGone(error) || requests.length === 1) throw error;
        return Promise.allSettled(requests.map(async (request) => firstOf(acceptAll([request]))));
      }
    },
    GROUPS,
  );
  return async (request) => {
    const result = await groups.ask(request);
    if (result.status === "rejected") throw result.reason;
    return result.value;
  };
}

async function firstOf(accepting: Promise<Accepted[]>): Promise<Accepted> {
  const [accepted] = await accepting;
  if (!accepted) throw new Error("nothing was accepted");
  return accepted;
}

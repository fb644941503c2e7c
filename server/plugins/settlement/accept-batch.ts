/** Hands signed payments that are ready at the same moment to the engine in one transaction: ours, and strangers'. */
import { Coalescer } from "../../infra/chain/coalesced-reads.ts";
import type { SettlementRequest, SettlementRow } from "./types.ts";

export interface Accepted {
  created: boolean;
  settlement: SettlementRow;
}

const GROUPS = { maxBatch: 64, maxInFlight: 2 };

/** Payments of our own agents. `acceptAll` answers in the order of its requests, all or nothing. */
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

const ONE_GROUP_AT_A_TIME = { maxBatch: 500, maxInFlight: 1 };

/** Facilitated payments of one burst in one transaction: a lane then finds them together, and fills its batch. */
export function acceptTogether(
  acceptAll: (requests: SettlementRequest[]) => Promise<Accepted[]>,
): (request: SettlementRequest) => Promise<Accepted> {
  const together = new Coalescer<SettlementRequest, Accepted>(async (requests) => {
    // By nonce everywhere, so that replicas which hold the same payments cannot block each other.
    const sorted = [...requests].sort((one, other) => compare(nonceOf(one), nonceOf(other)));
    const accepted = await acceptAll(sorted);
    const byRequest = new Map(sorted.map((request, index) => [request, accepted[index]]));
    return requests.map((request) => byRequest.get(request) as Accepted);
  }, ONE_GROUP_AT_A_TIME);
  return (request) => together.ask(request);
}

const nonceOf = (request: SettlementRequest): string => request.authorization.nonce;
const compare = (one: string, other: string): number => (one < other ? -1 : Number(one > other));

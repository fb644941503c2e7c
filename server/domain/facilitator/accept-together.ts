/** Stores the payments of one burst in one transaction: a lane then finds them together, and fills its batch. */
import { Coalescer } from "../../adapters/chain/coalescer.ts";
import type { SettlementRequest, SettlementRow } from "../settlement/types.ts";

export interface Accepted {
  created: boolean;
  settlement: SettlementRow;
}

const ONE_GROUP_AT_A_TIME = { maxBatch: 500, maxInFlight: 1 };

/** `acceptAll` answers in the order of its requests, all or nothing. */
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

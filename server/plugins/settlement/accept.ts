/** Hands signed payments that are ready at the same moment to the engine in one transaction: ours, and strangers'. */
import type { SettlementKey } from "../../core/authorization.ts";
import { Coalescer } from "../../core/shared-answers.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { type SettlementRecord, acceptSettlement, toRow } from "./store.ts";
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

/** Many settlements accepted by one statement, with the very same outcome for each as if it came alone. */

/** Rows go in by the order of the arrays, so that groups with the same rows do not lock crosswise. */
const ACCEPT_TOGETHER = {
  name: "settlement-accept-together",
  text: `
  WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
      $8::text[], $9::numeric[], $10::numeric[], $11::numeric[], $12::bytea[], $13::boolean[], $14::bytea[],
      $15::bytea[], $16::bigint[]) AS w (from_address, chain_id, asset, nonce, id, kind, agent_id, to_address,
      value, valid_after, valid_before, signature, relay, caller_key_hash, body_hash, accepted_block)),
  inserted AS (
    INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, agent_id, to_address, value,
      valid_after, valid_before, signature, relay, status, caller_key_hash, body_hash, accepted_block)
    SELECT from_address, chain_id, asset, nonce, id, kind, agent_id, to_address, value,
      valid_after, valid_before, signature, relay, 'queued', caller_key_hash, body_hash, accepted_block FROM wanted
    ON CONFLICT (from_address, chain_id, asset, nonce) DO NOTHING
    RETURNING *)
  SELECT TRUE AS created, * FROM inserted
  UNION ALL
  SELECT FALSE, s.* FROM settlements s JOIN wanted w USING (from_address, chain_id, asset, nonce)`,
};

/**
 * Answers in the order of the requests. What is not simply new or simply known (a watched row to attach, a
 * rival's row that is not visible yet, the same authorization twice) is accepted by itself, after the rest.
 */
export async function acceptSettlements(
  sql: Sql,
  requests: readonly SettlementRequest[],
): Promise<{ created: boolean; settlement: SettlementRow }[]> {
  const [only] = requests;
  if (requests.length === 1 && only) return [await acceptSettlement(sql, only)];
  const firsts = new Map<string, SettlementRequest>();
  for (const request of requests) {
    const name = nameOf(request.authorization);
    if (!firsts.has(name)) firsts.set(name, request);
  }
  const { rows } = await sql.query<SettlementRecord & { created: boolean }>({
    ...ACCEPT_TOGETHER,
    values: columns([...firsts.values()]),
  });
  const found = new Map(
    rows.map((record) => {
      const settlement = toRow(record);
      return [nameOf(settlement.authorization), { created: record.created, settlement }] as const;
    }),
  );
  const accepted: { created: boolean; settlement: SettlementRow }[] = [];
  for (const request of requests) {
    const name = nameOf(request.authorization);
    const answer = firsts.get(name) === request ? found.get(name) : undefined;
    const isToAttach = answer && !answer.created && request.relay && !answer.settlement.relay;
    accepted.push(answer && !isToAttach ? answer : await acceptSettlement(sql, request));
  }
  return accepted;
}

const nameOf = ({ from, chainId, asset, nonce }: SettlementKey): string =>
  `${from} ${chainId} ${asset} ${nonce}`.toLowerCase();

function columns(requests: readonly SettlementRequest[]): unknown[][] {
  const of = (value: (request: SettlementRequest) => unknown): unknown[] => requests.map(value);
  return [
    of(({ authorization }) => authorization.from.toLowerCase()),
    of(({ authorization }) => authorization.chainId),
    of(({ authorization }) => authorization.asset.toLowerCase()),
    of(({ authorization }) => authorization.nonce.toLowerCase()),
    of(({ id }) => id),
    of(({ kind }) => kind),
    of(({ agentId }) => agentId),
    of(({ authorization }) => authorization.to.toLowerCase()),
    of(({ authorization }) => String(authorization.value)),
    of(({ authorization }) => String(authorization.validAfter)),
    of(({ authorization }) => String(authorization.validBefore)),
    of(({ authorization }) => Buffer.from(authorization.signature.slice(2), "hex")),
    of(({ relay }) => relay),
    of(({ callerKeyHash }) => callerKeyHash ?? null),
    of(({ bodyHash }) => bodyHash ?? null),
    of(({ acceptedBlock }) => (acceptedBlock === undefined ? null : String(acceptedBlock))),
  ];
}

/**
 * Accepts signed payments that arrive at the same moment in one database transaction: agents' and third
 * parties'.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { SettlementKey } from "../../core/authorization.ts";
import { Coalescer } from "../../core/shared-answers.ts";
import { wasRolledBack, type Sql } from "../../infra/db/pool.ts";
import { traced, currentTraceparent } from "../../infra/tracing.ts";
import { MAX_BATCH } from "./batch.ts";
import { gasRefusals } from "./gas-store.ts";
import { newRow, recordColumns, toRow, type SettlementRecord } from "./store.ts";
import type { Accepted, SettlementRequest, SettlementRow } from "./types.ts";

/** The database response was lost, and no row was found afterwards: the row may still appear. */
export class AcceptanceUnknown extends Error {
  override name = "AcceptanceUnknown";
  readonly id: string;

  constructor(id: string, cause: unknown) {
    super(`it is not known whether ${id} was accepted`, { cause });
    this.id = id;
  }
}

export interface Accepting {
  /** Returns results in the order of the requests. All are accepted, or none. */
  acceptAll(requests: SettlementRequest[]): Promise<Accepted[]>;
  find(key: SettlementKey): Promise<SettlementRow | undefined>;
}

/**
 * A group fills one transaction: the first payments of a burst are sent while the last are still being written.
 */
const GROUPS = { maxBatch: MAX_BATCH, maxInFlight: 2 };
/** After a lost response, the statement may still be running. */
const LOOK_AFTER_MS = [0, 500, 1_500];

type Accept = (request: SettlementRequest) => Promise<Accepted>;

/**
 * Groups concurrent requests. Each gets the result it would have got alone, whatever happens to the others.
 */
export function acceptInGroups(accepting: Accepting): Accept {
  const groups = new Coalescer<SettlementRequest, PromiseSettledResult<Accepted>>(
    async (requests) => {
      // Sorted by nonce in every replica, so that replicas with the same payments cannot deadlock.
      const sorted = [...requests].sort((one, other) => compare(nonceOf(one), nonceOf(other)));
      const results = await acceptGroup(accepting, sorted);
      const byRequest = new Map(sorted.map((request, index) => [request, results[index]]));
      return requests.map((request) => byRequest.get(request) as PromiseSettledResult<Accepted>);
    },
    GROUPS,
  );
  return async (request) => {
    // Keep the caller's own trace: the group runs in the trace of one of its callers.
    const traceparent = currentTraceparent();
    const result = await traced("settlement.persist", { "purser.payment_id": request.id }, () =>
      groups.fetch(traceparent === null ? request : Object.assign({}, request, { traceparent })),
    );
    if (result.status === "rejected") throw result.reason;
    return result.value;
  };
}

async function acceptGroup(
  accepting: Accepting,
  requests: SettlementRequest[],
): Promise<PromiseSettledResult<Accepted>[]> {
  try {
    const accepted = await accepting.acceptAll(requests);
    return requests.map((request, index) => ({
      status: "fulfilled",
      value: asOwn(request, accepted[index] as Accepted),
    }));
  } catch (error) {
    const [only] = requests;
    // Payments without gas budget are named in the error; the rest is retried together, so the group shrinks
    // each time.
    const refused = gasRefusals(error);
    if (refused.size > 0) {
      const rest = requests.filter(({ id }) => !refused.has(id));
      const accepted = rest.length > 0 ? await acceptGroup(accepting, rest) : [];
      const byId = new Map(rest.map(({ id }, index) => [id, accepted[index]]));
      return requests.map(
        ({ id }) => byId.get(id) ?? { status: "rejected", reason: refused.get(id) ?? error },
      );
    }
    // One rejected payment rolls back its whole group, so each is retried alone.
    if (wasRolledBack(error) && requests.length > 1)
      return (
        await Promise.all(requests.map((request) => acceptGroup(accepting, [request])))
      ).flat();
    if (wasRolledBack(error) && only) return [{ status: "rejected", reason: error }];
    return Promise.allSettled(requests.map((request) => lookFor(accepting, request, error)));
  }
}

/** Reads the rows after a lost response. The statement is not repeated, because it could then run twice. */
async function lookFor(
  accepting: Accepting,
  request: SettlementRequest,
  cause: unknown,
): Promise<Accepted> {
  for (const afterMs of LOOK_AFTER_MS) {
    await sleep(afterMs);
    const settlement = await accepting.find(request.authorization).catch(() => undefined);
    if (settlement) return asOwn(request, { created: false, attached: false, settlement });
  }
  throw new AcceptanceUnknown(request.id, cause);
}

/** A row with our id was created by this request, whichever attempt wrote it. */
const asOwn = (request: SettlementRequest, accepted: Accepted): Accepted => ({
  ...accepted,
  created: accepted.created || accepted.settlement.id === request.id,
});

const nonceOf = (request: SettlementRequest): string => request.authorization.nonce;
const compare = (one: string, other: string): number => (one < other ? -1 : Number(one > other));

/**
 * Accepts one settlement. A row that was only watched is attached only to the same authorization: same payee,
 * value and time window.
 * With a signed maximum (upto), a watched row holds the maximum; attaching replaces it with the amount to
 * charge.
 */
const ACCEPT = `
  WITH inserted AS (
    INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, agent_id, to_address, value,
      valid_after, valid_before, signature, relay, status, caller_key_hash, body_hash, accepted_block, gas_accounts,
      gas_hold, terms, traceparent, rehearsed_block)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 'queued', $14, $15, $16, $17, $18, $19, $20, $21)
    ON CONFLICT (from_address, chain_id, asset, nonce) DO NOTHING
    RETURNING *),
  attached AS (
    UPDATE settlements
       SET relay = TRUE, value = $9, caller_key_hash = coalesce(caller_key_hash, $14), body_hash = coalesce(body_hash, $15),
           next_attempt_at = '-infinity', updated_at = clock_timestamp()
     WHERE from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce = $4 AND NOT relay AND $13
       AND status = 'queued' AND to_address = $8 AND valid_after = $10 AND valid_before = $11
       AND (value = $9 OR (value = (terms->>'maximum')::numeric AND $9 < value AND $19::jsonb->>'maximum' = terms->>'maximum'
            AND $19::jsonb->>'facilitator' = terms->>'facilitator'))
    RETURNING *)
  SELECT TRUE AS created, FALSE AS attached, ${recordColumns()} FROM inserted
  UNION ALL SELECT FALSE, TRUE, ${recordColumns()} FROM attached
  UNION ALL SELECT FALSE, FALSE, ${recordColumns()} FROM settlements
   WHERE from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce = $4
     AND NOT EXISTS (SELECT 1 FROM inserted) AND NOT EXISTS (SELECT 1 FROM attached)`;

export async function acceptSettlement(sql: Sql, request: SettlementRequest): Promise<Accepted> {
  const { authorization } = request;
  const values = [
    authorization.from.toLowerCase(),
    authorization.chainId,
    authorization.asset.toLowerCase(),
    authorization.nonce.toLowerCase(),
    request.id,
    request.kind,
    request.agentId,
    authorization.to.toLowerCase(),
    String(authorization.value),
    String(authorization.validAfter),
    String(authorization.validBefore),
    Buffer.from(authorization.signature.slice(2), "hex"),
    request.relay,
    request.callerKeyHash ?? null,
    request.bodyHash ?? null,
    blockText(request.acceptedBlock),
    request.gas?.accounts ?? [],
    String(request.gas?.hold ?? 0n),
    authorization.terms ?? null,
    request.traceparent ?? null,
    blockText(request.rehearsedBlock),
  ];
  // A row that another transaction committed after this statement began conflicts but is not visible, and a row
  // attached meanwhile is read in its old state. The next statement sees both.
  for (let attempt = 0; attempt < 3; attempt += 1) {
    const { rows } = await sql.query<SettlementRecord & Omit<Accepted, "settlement">>({
      // Prepared once per connection: planning costs more than running it.
      name: "settlement-accept",
      text: ACCEPT,
      values,
    });
    const [record] = rows;
    const mayBeAttached = request.relay && record?.relay === false && attempt < 2;
    if (record && !mayBeAttached)
      return { created: record.created, attached: record.attached, settlement: toRow(record) };
  }
  throw new Error("a settlement conflicts with one that cannot be read");
}

/** Accepts many settlements in one statement, each with the same result as if it came alone. */

/** Rows are inserted in the order of the arrays, so that groups with the same rows do not deadlock. */
const ACCEPT_TOGETHER = {
  name: "settlement-accept-together",
  text: `
  WITH wanted AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
      $8::text[], $9::numeric[], $10::numeric[], $11::numeric[], $12::bytea[], $13::boolean[], $14::bytea[],
      $15::bytea[], $16::bigint[], $17::text[], $18::numeric[], $19::jsonb[], $20::text[], $21::bigint[]) AS w (from_address, chain_id, asset, nonce, id, kind,
      agent_id, to_address, value, valid_after, valid_before, signature, relay, caller_key_hash, body_hash,
      accepted_block, gas_accounts, gas_hold, terms, traceparent, rehearsed_block))
  INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, agent_id, to_address, value,
    valid_after, valid_before, signature, relay, status, caller_key_hash, body_hash, accepted_block, gas_accounts,
    gas_hold, terms, traceparent, rehearsed_block)
  SELECT from_address, chain_id, asset, nonce, id, kind, agent_id, to_address, value,
    valid_after, valid_before, signature, relay, 'queued', caller_key_hash, body_hash, accepted_block, gas_accounts::text[],
    gas_hold, terms, traceparent, rehearsed_block FROM wanted
  ON CONFLICT (from_address, chain_id, asset, nonce) DO NOTHING
  RETURNING id, created_at`,
};

/**
 * Returns results in the order of the requests. A request that is not simply new (known, a watched row to
 * attach, a row of another transaction that is not visible yet, the same authorization twice) is accepted
 * alone, after the rest.
 */
export async function acceptSettlements(
  sql: Sql,
  requests: readonly SettlementRequest[],
): Promise<Accepted[]> {
  const [only] = requests;
  if (requests.length === 1 && only) return [await acceptSettlement(sql, only)];
  const firsts = new Map<string, SettlementRequest>();
  for (const request of requests) {
    const name = nameOf(request.authorization);
    if (!firsts.has(name)) firsts.set(name, request);
  }
  const { rows } = await sql.query<{ id: string; created_at: Date }>({
    ...ACCEPT_TOGETHER,
    values: columns([...firsts.values()]),
  });
  const createdAt = new Map(rows.map(({ id, created_at }) => [id, created_at]));
  const accepted: Accepted[] = [];
  for (const request of requests) {
    const isNew = createdAt.get(request.id);
    accepted.push(
      isNew
        ? { created: true, attached: false, settlement: newRow(request, isNew) }
        : await acceptSettlement(sql, request),
    );
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
    of(({ acceptedBlock }) => blockText(acceptedBlock)),
    // Postgres arrays of arrays must have equal lengths, so each inner array is passed as text.
    of(({ gas }) => `{${(gas?.accounts ?? []).map((account) => `"${account}"`).join(",")}}`),
    of(({ gas }) => String(gas?.hold ?? 0n)),
    of(({ authorization: { terms } }) => (terms ? JSON.stringify(terms) : null)),
    of(({ traceparent }) => traceparent ?? null),
    of(({ rehearsedBlock }) => blockText(rehearsedBlock)),
  ];
}

const blockText = (number: bigint | undefined): string | null =>
  number === undefined ? null : String(number);

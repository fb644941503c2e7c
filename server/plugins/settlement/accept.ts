/**
 * Accepts signed payments that arrive at the same moment in one database transaction: agents' and third
 * parties'.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { SettlementKey } from "../../core/authorization.ts";
import { Coalescer } from "../../core/shared-answers.ts";
import { bytea, wasRolledBack, type Sql } from "../../infra/db/pool.ts";
import { traced, currentTraceparent } from "../../infra/tracing.ts";
import { MAX_BATCH } from "./batch.ts";
import { gasRefusals } from "./gas-store.ts";
import { columnsOf, decode, type SettlementColumns } from "./store.ts";
import {
  AcceptanceUnknown,
  type Accepted,
  type SettlementRequest,
  type SettlementRow,
} from "./types.ts";

interface Accepting {
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
      groups.fetch({ ...request, traceparent }),
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

/** The columns of a new row, with values that Postgres reads from JSON. */
const newRow = (request: SettlementRequest): Record<string, unknown> => {
  const { authorization, gas } = request;
  return {
    from_address: authorization.from.toLowerCase(),
    chain_id: authorization.chainId,
    asset: authorization.asset.toLowerCase(),
    nonce: authorization.nonce.toLowerCase(),
    id: request.id,
    kind: request.kind,
    agent_id: request.agentId,
    to_address: authorization.to.toLowerCase(),
    value: String(authorization.value),
    valid_after: String(authorization.validAfter),
    valid_before: String(authorization.validBefore),
    signature: `\\x${authorization.signature.slice(2)}`,
    relay: request.relay,
    status: "queued",
    caller_key_hash: request.callerKeyHash ? bytea(request.callerKeyHash) : null,
    body_hash: request.bodyHash ? bytea(request.bodyHash) : null,
    accepted_block: request.acceptedBlock === undefined ? null : String(request.acceptedBlock),
    gas_accounts: gas?.accounts ?? [],
    gas_hold: String(gas?.hold ?? 0n),
    terms: authorization.terms ?? null,
    traceparent: request.traceparent ?? null,
    resource_url: request.resource?.url ?? null,
    resource_method: request.resource?.method ?? null,
    resource_description: request.resource?.description ?? null,
    fee: request.fee ?? null,
  };
};

const INSERTED = `from_address, chain_id, asset, nonce, id, kind, agent_id, to_address, value, valid_after,
  valid_before, signature, relay, status, caller_key_hash, body_hash, accepted_block, gas_accounts, gas_hold,
  terms, traceparent, resource_url, resource_method, resource_description, fee`;

/** One row or many, in the order of the list, so that statements with the same rows do not deadlock. */
const INSERT = {
  name: "settlement-accept",
  text: `INSERT INTO settlements (${INSERTED})
    SELECT ${INSERTED} FROM jsonb_populate_recordset(NULL::settlements, $1)
    ON CONFLICT (from_address, chain_id, asset, nonce) DO NOTHING
    RETURNING ${columnsOf()}`,
};

/**
 * Returns results in the order of the requests. A request that is not simply new (known, a watched row to
 * attach, the same authorization twice) gets its own statement after the insert.
 */
export async function acceptSettlements(
  sql: Sql,
  requests: readonly SettlementRequest[],
): Promise<Accepted[]> {
  const { rows } = await sql.query<SettlementColumns>({
    ...INSERT,
    values: [JSON.stringify(requests.map(newRow))],
  });
  const inserted = new Map(rows.map((row) => [row.id, row]));
  const accepted: Accepted[] = [];
  for (const request of requests) {
    const row = inserted.get(request.id);
    inserted.delete(request.id);
    accepted.push(
      row
        ? { created: true, attached: false, settlement: decode(row) }
        : await attachOrFind(sql, request),
    );
  }
  return accepted;
}

/**
 * The row of a known authorization. A row that was only watched is attached only to the same authorization: same
 * payee, value and time window.
 * With a signed maximum (upto), a watched row holds the maximum; attaching replaces it with the amount to
 * charge.
 */
const ATTACH_OR_FIND = `
  WITH attached AS (
    UPDATE settlements
       SET relay = TRUE, value = $5, caller_key_hash = coalesce(caller_key_hash, $6), body_hash = coalesce(body_hash, $7),
           resource_url = $13, resource_method = $14, resource_description = $15, fee = $16, next_attempt_at = '-infinity',
           updated_at = clock_timestamp()
     WHERE from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce = $4 AND NOT relay AND $8
       AND status = 'queued' AND to_address = $9 AND valid_after = $10 AND valid_before = $11
       AND (value = $5 OR (value = (terms->>'maximum')::numeric AND $5 < value AND $12::jsonb->>'maximum' = terms->>'maximum'
            AND $12::jsonb->>'facilitator' = terms->>'facilitator'))
    RETURNING *)
  SELECT TRUE AS attached, ${columnsOf()} FROM attached
  UNION ALL SELECT FALSE, ${columnsOf()} FROM settlements
   WHERE from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce = $4 AND NOT EXISTS (SELECT 1 FROM attached)`;

async function attachOrFind(sql: Sql, request: SettlementRequest): Promise<Accepted> {
  const { authorization } = request;
  const values = [
    authorization.from.toLowerCase(),
    authorization.chainId,
    authorization.asset.toLowerCase(),
    authorization.nonce.toLowerCase(),
    String(authorization.value),
    request.callerKeyHash ?? null,
    request.bodyHash ?? null,
    request.relay,
    authorization.to.toLowerCase(),
    String(authorization.validAfter),
    String(authorization.validBefore),
    authorization.terms ?? null,
    request.resource?.url ?? null,
    request.resource?.method ?? null,
    request.resource?.description ?? null,
    request.fee ?? null,
  ];
  // A row that another transaction attached meanwhile is read in its old state; the next statement sees it.
  for (let attempt = 0; attempt < 2; attempt += 1) {
    const { rows } = await sql.query<SettlementColumns & { attached: boolean }>({
      // Prepared once per connection: planning costs more than running it.
      name: "settlement-attach-or-find",
      text: ATTACH_OR_FIND,
      values,
    });
    const [row] = rows;
    const mayBeAttached = request.relay && row?.relay === false && attempt === 0;
    if (row && !mayBeAttached)
      return { created: false, attached: row.attached, settlement: decode(row) };
  }
  throw new Error("a settlement conflicts with one that cannot be read");
}

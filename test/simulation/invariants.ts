// What must be true in every world in the end, whatever happened in it.
import type { ClientBase } from "pg";
import type { Hex } from "viem";
import { ENGINE_INVARIANTS } from "./engine-invariants.ts";
import { OWNER_INVARIANTS } from "./owner-invariants.ts";
import { RELAYERS, useKey, type Intent, type World } from "./world.ts";

/** A payment with money, and nothing in its way, is in a block by then. */
const GOOD_WITHIN_MS = 45_000;
/** Refusals of accepted payments that are proven on the chain. */
const FOREVER = new Set([
  "invalid_exact_evm_payload_authorization_valid_before",
  "permit2_deadline_expired",
  "invalid_exact_evm_nonce_already_used",
  "permit2_invalid_nonce",
]);
const OPEN = new Set(["settlement_pending", "unexpected_settle_error"]);
const isRefusal = (body: Record<string, unknown>): boolean =>
  body["success"] === false &&
  !OPEN.has(String(body["errorReason"])) &&
  body["errorReason"] !== "duplicate_settlement";

const atomicOf = (decimal: string): bigint => BigInt(Math.round(Number(decimal) * 1e6));

const usesIn = (chain: World["chain"]) =>
  [...chain.ends()].flatMap((end) =>
    end.kind === "used"
      ? [
          {
            ...end,
            key: useKey(end.from, end.nonce),
            timestampSeconds: chain.ledger.blocks[end.block]?.timestampSeconds ?? 0,
          },
        ]
      : [],
  );

export type Invariant = (world: World, sql: ClientBase) => Promise<string[]> | string[];

const INVARIANTS: Readonly<Record<string, Invariant>> = {
  /** Nobody is told "paid" for money that did not move, or "not paid" for money that did; and nobody pays twice. */
  async answers(world, sql) {
    const { intents, chain } = world;
    const moved = new Map<string, number>();
    for (const { from, to, value } of chain.transfers()) {
      const key = `${from} ${to} ${value}`;
      moved.set(key, (moved.get(key) ?? 0) + 1);
    }
    const corrected = await correctedPayments(world, sql);
    return intents.flatMap((intent) => {
      const { who, from, to, amountAtomic, outcome, answers, isForgotten } = intent;
      const key = `${from} ${to} ${amountAtomic}`.toLowerCase();
      const times = moved.get(key) ?? 0;
      const last = JSON.stringify(answers.at(-1)?.body ?? {}).slice(0, 200);
      if (times > 1) return [`${who} was paid ${times} times`];
      if (outcome === undefined && isForgotten !== true) return [`${who} has no outcome: ${last}`];
      // What is told before it is final may be taken back: the owner is told that, too.
      if (corrected.has(keyOf(intent)) && (outcome === "paid" || world.deepestReorganisation > 2))
        return [];
      if (outcome === "paid" && times === 0)
        return [`${who} was answered "paid", and nothing moved`];
      if (outcome === "not paid" && times > 0)
        return [`${who} was answered "not paid", and the money moved: ${last}`];
      return [];
    });
  },

  /** The ledger says of every authorization what the chain says. */
  async ledger({ chain }, sql) {
    const { rows } = await sql.query<{
      id: string;
      status: string;
      txHash: string | null;
      key: string;
      to: string;
      value: string;
      acceptedBlock: number | null;
      isOutside: boolean;
      isFinal: boolean;
    }>(
      `SELECT id, status, tx_hash AS "txHash", from_address || ' ' || nonce AS key, to_address AS to, value::text,
              accepted_block::float8 AS "acceptedBlock", kind = 'facilitated' AS "isOutside", final_at IS NOT NULL AS "isFinal"
         FROM settlements`,
    );
    const used = new Map<string, ReturnType<typeof usesIn>>();
    for (const use of usesIn(chain)) used.set(use.key, [...(used.get(use.key) ?? []), use]);
    return rows.flatMap(
      ({ id, status, txHash, key, to, value, acceptedBlock, isOutside, isFinal }) => {
        // Another authorization may have used the same nonce, and an outside payer may have paid with it before.
        const wasBefore = (block: number) =>
          isOutside && acceptedBlock !== null && block <= acceptedBlock;
        const use = used
          .get(key)
          ?.find(
            (each) => each.to === to && String(each.value) === value && !wasBefore(each.block),
          );
        if (status === "queued" || status === "submitted" || !isFinal)
          return [`${id} is still ${status}`];
        if (status === "settled" && use?.txHash !== txHash)
          return [`${id} is settled by ${txHash}, and the chain has ${use?.txHash}`];
        if (status !== "settled" && use !== undefined)
          return [`${id} is ${status}, and the chain has used it in ${use.txHash}`];
        return [];
      },
    );
  },

  /** A payment of an outside payer unlocks one resource at most, and only if it moved. */
  presented({ presented, chain, uses, isCalm, timeline }) {
    const all = usesIn(chain);
    return presented.flatMap(({ who, from, to, amountAtomic, nonce, claims, isGood, atMs }) => {
      const use = all.find(
        (each) => each.key === useKey(from, nonce) && each.to === to && each.value === amountAtomic,
      );
      const broken: string[] = [];
      const successes = claims.filter(({ body }) => body["success"] === true);
      const winners = new Set(successes.map(({ caller }) => caller));
      if (winners.size > 1) broken.push(`${who} was a success for ${[...winners].join(" and ")}`);
      if (winners.size > 0 && !use)
        broken.push(`${who} was answered as a success, and nothing moved`);
      for (const { body } of successes)
        if (uses.get(useKey(from, nonce))?.has(body["transaction"] as Hex) !== true)
          broken.push(
            `${who} was a success in ${String(body["transaction"])}, which did not pay it`,
          );
      for (const { body, block } of claims) {
        const reason = String(body["errorReason"] ?? "");
        const isProven = body["paymentId"] !== undefined && FOREVER.has(reason);
        if (isProven && use && use.block > block)
          broken.push(
            `${who} was refused for ever (${reason}) in block ${block}, and moved in block ${use.block}`,
          );
      }
      // Nobody waits for it, and nobody else moved it.
      const isRefused = claims.every(({ body, isLost }) => !isLost && isRefusal(body));
      const last = Math.max(...claims.map(({ block }) => block));
      if (isRefused && claims.length > 0 && use && RELAYERS.has(use.sender) && use.block > last)
        broken.push(`${who} was refused to all, and we moved it`);
      if (isGood && isCalm) {
        const lateMs = use ? use.timestampSeconds * 1_000 - atMs : Number.POSITIVE_INFINITY;
        if (lateMs > GOOD_WITHIN_MS)
          broken.push(
            `${who} is good, and ${use ? `moved after ${lateMs / 1_000} s` : "did not move"}: ${JSON.stringify(claims.at(-1)?.body).slice(0, 200)}`,
          );
      }
      return broken;
    });
  },

  /** An agent pays once for what it bought once, and is answered what became of it. */
  purchases({ purchases, chain, uses }) {
    const all = usesIn(chain);
    return purchases.flatMap(({ who, from, to, prices, answers, actions, isSafe }) => {
      const paid = all.filter(
        (use) => use.from === from && use.to === to && prices.includes(use.value),
      );
      const broken: string[] = [];
      const [use] = paid;
      if (paid.length > 1) broken.push(`${who} was paid ${paid.length} times`);
      if (answers.length === 0) broken.push(`${who} has no outcome`);
      if (!isSafe && actions > 1)
        broken.push(`${who} was carried out ${actions} times by the seller`);
      for (const { isPaid, amount, txHash, text } of answers) {
        if (!isPaid && use)
          broken.push(`${who} was answered "not paid", and the money moved: ${text}`);
        if (!isPaid) continue;
        if (!use) broken.push(`${who} was answered "paid", and nothing moved: ${text}`);
        else if (atomicOf(amount) !== use.value)
          broken.push(`${who} was answered ${amount} for ${use.value}`);
        else if (uses.get(use.key)?.has(txHash as Hex) !== true)
          broken.push(`${who} was answered as paid in ${txHash}, which did not pay it`);
      }
      return broken;
    });
  },

  /** What agents' wallets paid is in the ledger, and nothing else is. */
  async payments({ chain, agents }, sql) {
    const { rows } = await sql.query<{
      id: string;
      status: string;
      wallet: string;
      to: string;
      value: string;
    }>(
      `SELECT p.id, p.status, a.wallet_address AS wallet, p.counterparty AS to, p.amount::text AS value
         FROM payments p JOIN agents a ON a.id = p.agent_id WHERE p.kind <> 'incoming' AND p.status NOT IN ('blocked', 'voided', 'failed')`,
    );
    const wallets = new Set<string>(agents.map(({ wallet }) => wallet));
    const left = new Map<string, number>();
    for (const { from, to, value } of chain.transfers())
      if (wallets.has(from))
        left.set(`${from} ${to} ${value}`, (left.get(`${from} ${to} ${value}`) ?? 0) + 1);
    const broken: string[] = [];
    for (const { id, status, wallet, to, value } of rows) {
      const key = `${wallet} ${to} ${value}`;
      if (status !== "settled") broken.push(`payment ${id} is still ${status}`);
      else if ((left.get(key) ?? 0) === 0)
        broken.push(`payment ${id} is settled, and nothing moved`);
      left.set(key, (left.get(key) ?? 0) - 1);
    }
    for (const [key, times] of left)
      if (times > 0) broken.push(`the ledger lacks a payment: ${key}`);
    return broken;
  },

  /** The limits' running sums are the sums of the payments that they count. */
  async sums(_world, sql) {
    const { rows } = await sql.query<{ id: string; kept: string; counted: string }>(
      `SELECT a.id, a.window_sum::text AS kept, coalesce(sum(p.amount), 0)::text AS counted
         FROM agents a LEFT JOIN payments p ON p.agent_id = a.id AND p.kind IN ('spend', 'x402')
              AND p.created_at > a.window_tail_at AND p.status IN ('reserved', 'submitted', 'settled', 'unknown')
        GROUP BY a.id HAVING a.window_sum <> coalesce(sum(p.amount), 0)`,
    );
    return rows.map(
      ({ id, kept, counted }) => `the window of ${id} has ${kept}, counted are ${counted}`,
    );
  },

  /** A handler throws only refusals of the service. */
  handlers({ services, dead }) {
    return [...services, ...dead].flatMap(({ name, thrown, failed }) => [
      ...thrown.map(
        (error) => `${name} threw ${error instanceof Error ? error.stack : String(error)}`,
      ),
      ...(failed === undefined ? [] : [`${name} did not start: ${String(failed)}`]),
    ]);
  },

  ...OWNER_INVARIANTS,

  actors: ({ failures }) => failures,
  ...ENGINE_INVARIANTS,
};

const keyOf = ({ from, to, amountAtomic }: Pick<Intent, "from" | "to" | "amountAtomic">): string =>
  `${from} ${to} ${amountAtomic}`.toLowerCase();

/** Payments whose outcome was corrected because a reorganisation removed their block. */
async function correctedPayments(
  { deepestReorganisation }: World,
  sql: ClientBase,
): Promise<Set<string>> {
  if (deepestReorganisation === 0) return new Set();
  const { rows } = await sql.query<{ key: string }>(
    `SELECT s.from_address || ' ' || s.to_address || ' ' || s.value AS key FROM settlements s
      WHERE s.corrected_at IS NOT NULL`,
  );
  return new Set(rows.map(({ key }) => key));
}

export async function brokenIn(world: World, sql: ClientBase): Promise<string[]> {
  const broken: string[] = [];
  for (const [name, holds] of Object.entries(INVARIANTS))
    for (const text of await holds(world, sql)) broken.push(`${name}: ${text}`);
  return broken;
}

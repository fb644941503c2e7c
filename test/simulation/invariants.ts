// What must be true in every world, whatever happens in it.
import type { ClientBase } from "pg";
import type { Hex } from "viem";
import type { Invariant } from "./kind.ts";
import type { World } from "./world.ts";
import { CHANNELS, COLLECTOR } from "./chain/channels.ts";
import { CHANNEL_INVARIANTS, channelsNow } from "./channel-invariants.ts";
import { ENGINE_INVARIANTS, gasIsRight } from "./engine-invariants.ts";
import {
  correctedPayments,
  keyOf,
  OWNER_INVARIANTS,
  overLimits,
  stopsNow,
} from "./owner-invariants.ts";
import { SELLER_INVARIANTS, usesIn } from "./seller-invariants.ts";

/** The limits' running sums are the sums of the payments that they count. */
const sums: Invariant = async (_world, sql) => {
  const { rows } = await sql.query<{ id: string; kept: string; counted: string }>(
    `SELECT a.id, a.window_sum::text AS kept, coalesce(sum(p.amount), 0)::text AS counted
       FROM agents a LEFT JOIN payments p ON p.agent_id = a.id AND p.kind IN ('spend', 'x402')
            AND p.created_at > a.window_tail_at AND p.status IN ('reserved', 'submitted', 'settled', 'unknown')
      GROUP BY a.id HAVING a.window_sum <> coalesce(sum(p.amount), 0)`,
  );
  return rows.map(
    ({ id, kept, counted }) => `the window of ${id} has ${kept}, counted are ${counted}`,
  );
};

/** What must be true at every moment, also while everything fails. */
const AT_EVERY_MOMENT: Readonly<Record<string, Invariant>> = {
  sums,
  gas: gasIsRight,
  channels: channelsNow,
  stops: stopsNow,

  /** What is reserved counts before it is paid, and if it is never paid. */
  limits: (world, sql) => overLimits(world, sql, ["reserved", "submitted", "settled", "unknown"]),

  /** Nobody is answered "paid" before the money has moved. */
  async settled({ chain, intents, deepestReorganisation }, sql) {
    if (deepestReorganisation > 0) return [];
    const moved = new Set<string>();
    const hashes = new Set<string>();
    for (const { from, to, value, txHash } of chain.transfers()) {
      moved.add(`${from} ${to} ${value}`);
      hashes.add(txHash);
    }
    // A withdrawal from a channel moves nothing when it begins.
    for (const { txHash } of chain.channelEffects()) hashes.add(txHash);
    const { rows } = await sql.query<{ id: string; hash: string }>(
      "SELECT id, tx_hash AS hash FROM settlements WHERE status = 'settled' AND value > 0",
    );
    return [
      ...rows.flatMap(({ id, hash }) =>
        hashes.has(hash) ? [] : [`${id} is settled by ${hash}, and the chain does not have it`],
      ),
      ...intents.flatMap((intent) =>
        intent.outcome !== "paid" || moved.has(keyOf(intent))
          ? []
          : [`${intent.who} was answered "paid", and nothing has moved`],
      ),
    ];
  },
};

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
      if (corrected.has(keyOf(intent)) && (outcome === "paid" || world.wasFinalityBroken))
        return [];
      if (outcome === "paid" && times === 0)
        return [`${who} was answered "paid", and nothing moved`];
      if (outcome === "not paid" && times > 0)
        return [`${who} was answered "not paid", and the money moved: ${last}`];
      return [];
    });
  },

  /** The ledger says of every authorization what the chain says. */
  async ledger({ chain, wasFinalityBroken }, sql) {
    if (wasFinalityBroken) return [];
    const { rows } = await sql.query<{
      id: string;
      status: string;
      txHash: string | null;
      key: string;
      to: string;
      value: string;
      acceptedBlock: number | null;
      isOfChannel: boolean;
      isOutside: boolean;
      isFinal: boolean;
    }>(
      `SELECT id, status, tx_hash AS "txHash", from_address || ' ' || replace(nonce, 'channel:', '') AS key, value::text,
              CASE to_address WHEN $1 THEN $2 ELSE to_address END AS to, kind = 'withdrawal' AND nonce ^@ 'channel:' AS "isOfChannel",
              accepted_block::float8 AS "acceptedBlock", kind = 'facilitated' AS "isOutside", final_at IS NOT NULL AS "isFinal"
         FROM settlements`,
      [CHANNELS, COLLECTOR],
    );
    const channelSteps = new Set([...chain.channelEffects()].map(({ txHash: hash }) => hash));
    const used = new Map<string, ReturnType<typeof usesIn>>();
    for (const use of usesIn(chain)) used.set(use.key, [...(used.get(use.key) ?? []), use]);
    return rows.flatMap(
      ({ id, status, txHash, key, to, value, acceptedBlock, isOutside, isOfChannel, isFinal }) => {
        // Another authorization may have used the same nonce, and an outside payer may have paid with it before.
        const wasBefore = (block: number) =>
          isOutside && acceptedBlock !== null && block <= acceptedBlock;
        const use = used
          .get(key)
          ?.find(
            (each) => each.to === to && String(each.value) === value && !wasBefore(each.block),
          );
        // A step of a withdrawal from a channel uses no authorization of the token, and may be overtaken.
        if (isOfChannel)
          return status === "settled" && !channelSteps.has(txHash as Hex)
            ? [`${id} is settled by ${txHash}, which did nothing with a channel`]
            : [];
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

  /** What agents' wallets paid is in the ledger, and nothing else is. */
  async payments({ chain, agents }, sql) {
    const { rows } = await sql.query<{
      id: string;
      status: string;
      wallet: string;
      to: string;
      value: string;
    }>(
      // What is paid through a channel is moved by its deposit.
      `SELECT p.id, p.status, a.wallet_address AS wallet, CASE p.kind WHEN 'deposit' THEN $1 ELSE p.counterparty END AS to,
              p.amount::text AS value
         FROM payments p JOIN agents a ON a.id = p.agent_id
        WHERE p.kind <> 'incoming' AND p.ceiling IS NULL AND p.status NOT IN ('blocked', 'voided', 'failed')`,
      [COLLECTOR],
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

  sums,

  /** A handler throws only refusals of the service. */
  handlers({ services, dead, faults }) {
    return [...services, ...dead].flatMap(({ name, thrown, failed }) => [
      ...thrown.map((error) => `${name} threw ${describe(error)}`),
      ...(failed === undefined || faults.size > 0
        ? []
        : [`${name} did not start: ${describe(failed)}`]),
    ]);
  },

  ...OWNER_INVARIANTS,
  ...SELLER_INVARIANTS,
  ...CHANNEL_INVARIANTS,

  actors: ({ failures }) => failures,
  ...ENGINE_INVARIANTS,
};

/** What is broken in a world that has ended. */
export const brokenIn = (world: World, sql: ClientBase): Promise<string[]> =>
  brokenOf(INVARIANTS, world, sql);

/** What is broken in a world that goes on. */
export const brokenNow = (world: World, sql: ClientBase): Promise<string[]> =>
  brokenOf(AT_EVERY_MOMENT, world, sql);

async function brokenOf(
  invariants: Readonly<Record<string, Invariant>>,
  world: World,
  sql: ClientBase,
): Promise<string[]> {
  const broken: string[] = [];
  for (const [name, holds] of Object.entries(invariants))
    for (const text of await holds(world, sql)) broken.push(`${name}: ${text}`);
  return broken;
}

const describe = (error: unknown): string =>
  error instanceof Error ? (error.stack ?? error.message) : JSON.stringify(error);

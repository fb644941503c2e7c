// What must be true of payment channels: of what was signed, what lies in them, and what agents were answered.
import type { ClientBase } from "pg";
import type { Hex } from "viem";
import { tokenKeys } from "./chain/token.ts";
import { HELD_ATOMIC } from "./found.ts";
import type { Invariant } from "./kind.ts";
import type { World } from "./world.ts";

const atomicOf = (decimal: string): bigint => BigInt(Math.round(Number(decimal) * 1e6));

interface ChannelRow {
  agentId: string;
  id: Hex;
  status: string;
  ceiling: bigint;
  charged: bigint;
  returned: bigint;
  /** What the payments through it count as spent. */
  growth: bigint;
  /** Deposits that may have happened, and those that did. */
  promised: bigint;
  deposited: bigint;
}

async function channelsIn(sql: ClientBase): Promise<ChannelRow[]> {
  const { rows } = await sql.query<Record<keyof ChannelRow, string>>(
    `SELECT c.agent_id AS "agentId", c.id, c.status, c.ceiling::text, c.charged::text, c.returned::text,
            coalesce(sum(p.amount) FILTER (WHERE p.ceiling IS NOT NULL AND p.status IN ('submitted', 'settled', 'unknown')), 0)::text AS growth,
            coalesce(sum(p.amount) FILTER (WHERE p.kind = 'deposit' AND p.status IN ('reserved', 'submitted', 'settled', 'unknown')), 0)::text AS promised,
            coalesce(sum(p.amount) FILTER (WHERE p.kind = 'deposit' AND p.status = 'settled'), 0)::text AS deposited
       FROM channels c LEFT JOIN payments p ON p.agent_id = c.agent_id AND p.channel_id = c.id
      GROUP BY c.agent_id, c.id, c.status, c.ceiling, c.charged, c.returned`,
  );
  return rows.map((row) => ({
    agentId: row.agentId,
    id: row.id as Hex,
    status: row.status,
    ceiling: BigInt(row.ceiling),
    charged: BigInt(row.charged),
    returned: BigInt(row.returned),
    growth: BigInt(row.growth),
    promised: BigInt(row.promised),
    deposited: BigInt(row.deposited),
  }));
}

/** The issuer lets no money reach its wallet. */
const isBlocked = ({ agents, chain }: World, agentId: string): boolean =>
  agents.some(
    ({ id, wallet }) => id === agentId && chain.ledger.number(tokenKeys.blacklisted(wallet)) !== 0n,
  );

/** What the chain did with each channel, as of its newest block. */
function onChain({ chain }: World) {
  const sums = new Map<Hex, { deposited: bigint; back: bigint }>();
  for (const { id, what, amount } of chain.channelEffects()) {
    const sum = sums.get(id) ?? { deposited: 0n, back: 0n };
    if (what === "deposited") sum.deposited += amount;
    if (what === "refunded" || what === "withdrawn") sum.back += amount;
    sums.set(id, sum);
  }
  return (id: Hex) => ({ deposited: 0n, back: 0n, ...sums.get(id), ...chain.channelOf(id) });
}

/** Also while everything fails. */
export const channelsNow: Invariant = async (world, sql) => {
  if (world.sales.channels.length === 0) return [];
  const channels = await channelsIn(sql);
  const chainOf = onChain(world);
  const broken: string[] = [];
  const held = new Map<string, bigint>();
  for (const { agentId, id, status, ceiling, charged, returned, growth, promised } of channels) {
    const { deposited, claimed, balance, back } = chainOf(id);
    if (growth !== ceiling)
      broken.push(`${id} allows claims of ${ceiling}, and ${growth} of that counts as spent`);
    if (charged > ceiling) broken.push(`${id} has charged ${charged} of ${ceiling}`);
    if (claimed > ceiling) broken.push(`${id} was claimed for ${claimed}, signed are ${ceiling}`);
    if (deposited > promised)
      broken.push(`${id} got deposits of ${deposited}, and ${promised} is recorded`);
    if (balance !== deposited - back)
      broken.push(`${id} has ${balance} after deposits of ${deposited} and returns of ${back}`);
    const unspent = promised - returned - ceiling;
    if (status !== "closed" && unspent > 0n) held.set(agentId, (held.get(agentId) ?? 0n) + unspent);
  }
  for (const [agentId, sum] of held)
    if (sum > HELD_ATOMIC)
      broken.push(`${agentId} holds ${sum} in channels, allowed is ${HELD_ATOMIC}`);
  const known = new Set(channels.map(({ id }) => id));
  for (const { id } of world.chain.channelEffects())
    if (!known.has(id)) broken.push(`${id} is used, and not recorded`);
  return broken;
};

export const CHANNEL_INVARIANTS: Readonly<Record<string, Invariant>> = {
  /** A request is charged once at most, and answered as what it was. */
  channelAnswers({ sales }) {
    return sales.channels.flatMap((sale) => {
      const { who, kind, priceAtomic, charges, answers, once } = sale;
      const given = [...answers.values()].flat();
      const isOfSeveral = given.some(({ isPaid }) => isPaid === undefined);
      // A voucher that was refused when it was shown again, or a lost response of another request must be the reason, and
      // something must have been charged.
      const isExplained = sale.isRefusedAgain || (answers.size >= 2 && charges.size > 0);
      if (isOfSeveral && kind !== "liar" && !isExplained)
        return [`${who} has no second request that was charged: ${given[0]?.text}`];
      return [...answers].flatMap(([request, given]) => {
        const charged = charges.get(request) ?? [];
        const total = charged.reduce((sum, { amount }) => sum + amount, 0n);
        const isOwed = charged.some(({ amount, isForgotten }) => amount > 0n && !isForgotten);
        // A seller that forgot takes the same voucher again: the payer has signed, and pays, once.
        const times =
          kind === "forgetful"
            ? new Set(charged.map(({ ceiling }) => ceiling)).size
            : charged.length;
        const what = `request ${request} of ${who}`;
        const broken: string[] = [];
        if (times > 1) broken.push(`${what} was charged ${times} times`);
        // A channel that is closing shows no voucher again: what was charged is known when it is closed.
        if (given.length === 0 && !once.has(request) && !sales.isClosing)
          broken.push(`${what} has no outcome`);
        for (const { isPaid, amount, text } of given) {
          if (isPaid && charged.length === 0)
            broken.push(`${what} was answered "paid", and nothing was charged: ${text}`);
          if (isPaid && atomicOf(amount) > priceAtomic)
            broken.push(`${what} was answered ${amount}, and costs at most ${priceAtomic}`);
          // The word of a seller that lies is worth nothing.
          if (kind === "liar") continue;
          if (isPaid === false && isOwed)
            broken.push(`${what} was answered "not paid", and ${total} was charged: ${text}`);
          if (isPaid && charged.length === 1 && atomicOf(amount) !== total)
            broken.push(`${what} was answered ${amount}, and ${total} was charged: ${text}`);
        }
        return broken;
      });
    });
  },

  /** Deposits are claimed, returned or still there, in the ledger as on the chain; and what is closing ends. */
  async channelMoney(world, sql) {
    if (world.wasFinalityBroken) return [];
    const chainOf = onChain(world);
    return (await channelsIn(sql)).flatMap(
      ({ agentId, id, status, ceiling, deposited, returned }) => {
        const chain = chainOf(id);
        const broken: string[] = [];
        if (deposited !== chain.deposited)
          broken.push(`${id} has deposits of ${deposited}, on the chain of ${chain.deposited}`);
        if (status === "closing" && !isBlocked(world, agentId))
          broken.push(`${id} is still closing`);
        if (status !== "closed") return broken;
        if (returned !== chain.back)
          broken.push(`${id} returned ${chain.back}, recorded is ${returned}`);
        if (chain.balance !== chain.claimed)
          broken.push(`${id} is closed, and ${chain.balance - chain.claimed} is left in it`);
        if (chain.claimed > ceiling) broken.push(`${id} was claimed above its ceiling`);
        return broken;
      },
    );
  },
};

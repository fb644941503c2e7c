// What must be true of payments that sellers presented, and of what agents bought from sellers.
import { wordOf } from "./host.ts";
import type { ClientBase } from "pg";
import type { Hex } from "viem";
import type { Invariant } from "./kind.ts";
import { useKey } from "./sales.ts";
import { RELAYERS, type World } from "./world.ts";

/** A payment with money, and nothing in its way, is in a block by then. */
const GOOD_WITHIN_MS = 45_000;
/** Refusals of accepted payments that are proven on the chain. */
const FOREVER = new Set([
  "invalid_exact_evm_payload_authorization_valid_before",
  "permit2_deadline_expired",
  "invalid_exact_evm_nonce_already_used",
  "permit2_invalid_nonce",
]);
const OPEN = new Set(["settlement_pending", "duplicate_settlement"]);
const isRefusal = (body: Record<string, unknown>): boolean =>
  body["success"] === false && !OPEN.has(String(body["errorReason"]));

const atomicOf = (decimal: string): bigint => BigInt(Math.round(Number(decimal) * 1e6));

/** The uses of authorizations that the chain has in the end. */
export const usesIn = (chain: World["chain"]) =>
  [...chain.ends()].flatMap((end) =>
    end.kind === "used" ? [{ ...end, key: useKey(end.from, end.nonce) }] : [],
  );

/** A success is told before it is final. What a reorganisation takes back for good is corrected. */
async function takenBackIn({ deepestReorganisation }: World, sql: ClientBase) {
  if (deepestReorganisation === 0) return [];
  const { rows } = await sql.query<{ key: string; from: string; to: string; value: string }>(
    `SELECT lower(from_address || ' ' || nonce) AS key, from_address AS from, to_address AS to, value::text
       FROM settlements WHERE corrected_at IS NOT NULL AND status <> 'settled'`,
  );
  return rows.map((row) => ({ ...row, value: BigInt(row.value) }));
}

export const SELLER_INVARIANTS: Readonly<Record<string, Invariant>> = {
  /** A payment of an outside payer unlocks one resource at most, and only if it moved. */
  async presented(world, sql) {
    const { sales, chain, faults, wasFinalityBroken } = world;
    if (wasFinalityBroken) return [];
    const all = usesIn(chain);
    const takenBack = new Set((await takenBackIn(world, sql)).map(({ key }) => key));
    return sales.presented.flatMap(
      ({ who, from, to, amountAtomic, nonce, claims, isGood, atMs }) => {
        const key = useKey(from, nonce);
        const use = all.find(
          (each) => each.key === key && each.to === to && each.value === amountAtomic,
        );
        const broken: string[] = [];
        const successes = claims.filter(({ body }) => body["success"] === true);
        const winners = new Set(successes.map(({ caller }) => caller));
        if (winners.size > 1) broken.push(`${who} was a success for ${[...winners].join(" and ")}`);
        if (winners.size > 0 && !use && !takenBack.has(key))
          broken.push(`${who} was a success, and nothing moved`);
        for (const { body } of successes)
          if (sales.uses.get(key)?.has(body["transaction"] as Hex) !== true)
            broken.push(
              `${who} was a success in ${String(body["transaction"])}, which did not pay it`,
            );
        for (const { body, block } of claims) {
          const reason = wordOf(body["errorReason"]);
          const isProven = body["paymentId"] !== undefined && FOREVER.has(reason);
          if (isProven && use && use.block > block)
            broken.push(
              `${who} was refused for ever (${reason}) in block ${block}, and moved in block ${use.block}`,
            );
        }
        // Nobody waits for it, and nobody else moved it.
        const isRefused =
          claims.length > 0 &&
          claims.every(({ body, isLost }) => !isLost && isRefusal(body)) &&
          sales.presented.filter((one) => one.nonce === nonce && one.to === to).length === 1;
        const last = Math.max(...claims.map(({ block }) => block));
        if (isRefused && use && RELAYERS.has(use.sender) && use.block > last)
          broken.push(`${who} was refused to all, and we moved it`);
        if (isGood && faults.size === 0 && !sales.isDisturbed) {
          const seconds = use ? Number(chain.ledger.blocks[use.block]?.timestampSeconds) : Infinity;
          const answer = JSON.stringify(claims.at(-1)?.body ?? {}).slice(0, 200);
          if (seconds * 1_000 - atMs > GOOD_WITHIN_MS)
            broken.push(`${who} was not paid in time: ${answer}`);
        }
        return broken;
      },
    );
  },

  /** An agent pays once for what it bought once, and is answered what became of it. */
  async fetched(world, sql) {
    const { sales, chain } = world;
    const all = usesIn(chain);
    const takenBack = await takenBackIn(world, sql);
    return sales.fetched.flatMap(({ who, from, to, prices, answers, proofs, isSafe }) => {
      const paid = all.filter(
        (use) => use.from === from && use.to === to && prices.includes(use.value),
      );
      const [use] = paid;
      const isTakenBack = takenBack.some(
        (one) => one.from === from && one.to === to && prices.includes(one.value),
      );
      const broken: string[] = [];
      if (paid.length > 1) broken.push(`${who} was paid ${paid.length} times`);
      if (answers.length === 0) broken.push(`${who} has no outcome`);
      if (!isSafe && proofs > 1) broken.push(`${who} was sent to the seller ${proofs} times`);
      for (const { isPaid, amount, txHash, text } of answers) {
        if (!isPaid && use)
          broken.push(`${who} was answered "not paid", and the money moved: ${text}`);
        if (!isPaid) continue;
        if (!use && isTakenBack) continue;
        if (!use) broken.push(`${who} was answered "paid", and nothing moved: ${text}`);
        else if (atomicOf(amount) !== use.value)
          broken.push(`${who} was answered ${amount} for ${use.value}`);
        else if (sales.uses.get(use.key)?.has(txHash as Hex) !== true)
          broken.push(`${who} was paid in ${txHash}, which did not pay it`);
      }
      return broken;
    });
  },

  /** No more than was paid is given back, and a refund's answer is true. */
  async refunded({ sales, chain }, sql) {
    const all = usesIn(chain);
    const { rows } = await sql.query<{ id: string; nonce: string }>(
      "SELECT settlement_id AS id, nonce FROM refunds",
    );
    return sales.refunded.flatMap(({ who, id, from, amountAtomic, answers }) => {
      const own = new Set(
        rows.filter((row) => row.id === id).map(({ nonce }) => useKey(from, nonce)),
      );
      const back = all
        .filter(({ key }) => own.has(key))
        .reduce((sum, { value }) => sum + value, 0n);
      const broken = back > amountAtomic ? [`${who} are ${back}`] : [];
      for (const { nonce, isPaid, txHash } of answers) {
        const use = all.find(({ key }) => key === useKey(from, nonce));
        if (isPaid !== (use !== undefined))
          broken.push(
            `${who}: one was answered as ${isPaid ? "paid" : "failed"}, and the chain has ${use?.txHash}`,
          );
        if (isPaid && sales.uses.get(useKey(from, nonce))?.has(txHash as Hex) !== true)
          broken.push(`${who}: one was answered as paid in ${txHash}`);
      }
      return broken;
    });
  },
};

// What must be true of the rules that owners set, and of what they and their agents did.
import { wordOf } from "./host.ts";
import type { ClientBase } from "pg";
import type { Invariant } from "./kind.ts";
import type { PayeeRule, RuleName } from "./records.ts";
import type { Intent, World } from "./world.ts";

const HOUR_MS = 3_600_000;

interface Paid {
  id: string;
  agentId: string;
  kind: string;
  payee: string;
  amount: bigint;
  atMs: number;
  approvalId: string | null;
}

/** The payments that moved money and count in limits, as the ledger has them, in their order. */
async function paidIn(sql: ClientBase, statuses: readonly string[] = ["settled"]): Promise<Paid[]> {
  const { rows } = await sql.query<Omit<Paid, "amount" | "atMs"> & { amount: string; at: string }>(
    `SELECT id, agent_id AS "agentId", kind, counterparty AS payee, amount::text, policy->'approval'->>'id' AS "approvalId",
            (extract(epoch FROM created_at) * 1000)::text AS at
       FROM payments WHERE kind IN ('spend', 'x402') AND status = ANY ($1) ORDER BY created_at`,
    [statuses],
  );
  return rows.map(({ amount, at, ...row }) => ({
    ...row,
    amount: BigInt(amount),
    atMs: Number(at),
  }));
}

const WINDOWS: readonly (readonly [RuleName, number])[] = [
  ["dailyLimit", 24 * HOUR_MS],
  ["weeklyLimit", 168 * HOUR_MS],
  ["monthlyLimit", 720 * HOUR_MS],
];

function brokenBy(one: Paid, all: readonly Paid[], world: World): string[] {
  const { rules } = world.records;
  const { agentId, payee, amount, atMs } = one;
  const possible = (name: RuleName) => rules.possible(agentId, name, atMs);
  const before = (windowMs: number) =>
    all.filter((other) => other.atMs > atMs - windowMs && other.atMs <= atMs);
  const sum = (list: readonly Paid[]) => list.reduce((total, other) => total + other.amount, 0n);
  const broken: string[] = [];
  const assertWithin = (name: string, used: bigint, limits: readonly (bigint | null)[]): void => {
    if (limits.every((limit) => limit !== null && used > limit))
      broken.push(`${name}: ${used} of ${limits.join(" or ")}`);
  };
  for (const [name, windowMs] of WINDOWS)
    assertWithin(name, sum(before(windowMs)), possible(name) as (bigint | null)[]);
  assertWithin("perPaymentLimit", amount, possible("perPaymentLimit") as (bigint | null)[]);
  assertWithin(
    "paymentsPerHour",
    BigInt(before(HOUR_MS).length),
    possible("paymentsPerHour") as (bigint | null)[],
  );
  const terms = possible(`payee ${payee}`).filter((rule) => rule !== null) as PayeeRule[];
  if (terms.length === 0) broken.push(`${payee} was not allowed`);
  else {
    const paidToo = before(24 * HOUR_MS).filter((other) => other.payee === payee);
    assertWithin(
      "the payee's dailyLimit",
      sum(paidToo),
      terms.map(({ dailyLimit }) => dailyLimit),
    );
  }
  return broken.map((text) => `${agentId} paid ${one.id}: ${text}`);
}

/** Payments of these statuses that broke every rule that may have been in force when they were decided. */
export async function overLimits(
  world: World,
  sql: ClientBase,
  statuses: readonly string[],
): Promise<string[]> {
  const all = await paidIn(sql, statuses);
  return world.agents.flatMap(({ id }) => {
    const own = all.filter(({ agentId }) => agentId === id);
    return own.flatMap((one) => {
      const possible = (name: RuleName) => world.records.rules.possible(id, name, one.atMs);
      const states = possible("status");
      const paused = [
        !states.includes("active") && `while it was ${states.map(wordOf).join(" or ")}`,
        !possible("stopped").includes("no") && "after its owner had stopped everything",
        !possible("pausedByRule").includes("no") && "after a rule had paused it",
      ].flatMap((why) => (why === false ? [] : [`${id} paid ${one.id} ${why}`]));
      return [...paused, ...(one.approvalId === null ? brokenBy(one, own, world) : [])];
    });
  });
}

export const keyOf = ({
  from,
  to,
  amountAtomic,
}: Pick<Intent, "from" | "to" | "amountAtomic">): string =>
  `${from} ${to} ${amountAtomic}`.toLowerCase();

/** Payments whose outcome was corrected because a reorganisation removed their block, with how many of them never moved. */
export async function correctedPayments(
  { deepestReorganisation }: World,
  sql: ClientBase,
): Promise<Map<string, number>> {
  if (deepestReorganisation === 0) return new Map();
  const { rows } = await sql.query<{ key: string; lost: number }>(
    `SELECT s.from_address || ' ' || s.to_address || ' ' || s.value AS key, count(*) FILTER (WHERE s.status <> 'settled')::int AS lost
       FROM settlements s WHERE s.corrected_at IS NOT NULL GROUP BY 1`,
  );
  return new Map(rows.map(({ key, lost }) => [key, lost]));
}

/** A stop pauses all agents, and its end returns all that it paused. */
export const stopsNow: Invariant = async (_world, sql) => {
  const { rows } = await sql.query<{ id: string; state: string; isStopped: boolean }>(
    `SELECT a.id, a.status || ' by ' || coalesce(a.paused_by, 'its owner') AS state, o.stopped_at IS NOT NULL AS "isStopped"
       FROM agents a JOIN owners o ON o.id = a.owner_id
      WHERE CASE WHEN o.stopped_at IS NULL THEN a.paused_by = 'stop' ELSE a.status = 'active' END`,
  );
  return rows.map(
    ({ id, state, isStopped }) =>
      `${id} is ${state} while everything ${isStopped ? "is stopped" : "goes on"}`,
  );
};

export const OWNER_INVARIANTS: Readonly<Record<string, Invariant>> = {
  /** No payment broke every rule that may have been in force when it was decided. */
  limits: (world, sql) => overLimits(world, sql, ["settled"]),

  /** An agent that nobody paused by hand is not paused like that, also after a stop and its end. */
  async pauses({ records, timeline }, sql) {
    const { rows } = await sql.query<{ id: string }>(
      "SELECT id FROM agents WHERE status = 'paused' AND paused_by IS NULL",
    );
    return rows.flatMap(({ id }) =>
      records.rules.possible(id, "status", timeline.nowMs).includes("paused")
        ? []
        : [`${id} is paused, as if by its owner`],
    );
  },

  /** An approval is used once, for what its owner signed, and not after the owner knew that it was declined. */
  async approvals({ records }, sql) {
    const used = new Map<string, string>();
    return (await paidIn(sql)).flatMap(({ id, approvalId, payee, amount, atMs }) => {
      if (approvalId === null) return [];
      const signed = records.approvals.get(approvalId);
      const twice = used.get(approvalId);
      used.set(approvalId, id);
      if (twice !== undefined) return [`${approvalId} was used for ${twice} and for ${id}`];
      if (!signed || signed.grantedMs > atMs)
        return [`${id} used ${approvalId}, which nobody had granted`];
      if (signed.declinedMs < atMs) return [`${id} used ${approvalId}, which was declined`];
      if (signed.payee !== payee || signed.amountAtomic !== amount)
        return [`${id} is not what ${approvalId} was for`];
      return [];
    });
  },

  /** A call without a key that is sent again is paid once, and every payment is answered. */
  async purchases(world, sql) {
    const { records, chain, wasFinalityBroken } = world;
    const corrected = await correctedPayments(world, sql);
    return records.purchases.flatMap(
      ({ who, from, to, amountAtomic, paid, wanted, hasNoOutcome }) => {
        let times = 0;
        for (const transfer of chain.transfers())
          if (transfer.from === from && transfer.to === to && transfer.value === amountAtomic)
            times += 1;
        if (times > wanted) return [`${who} wanted ${wanted}, and paid ${times} times`];
        // What was paid may be gone for good, as the answers could not know.
        if (wasFinalityBroken) return [];
        // What is told before it is final may be taken back: the owner is told that, too.
        const lost = corrected.get(keyOf({ from, to, amountAtomic })) ?? 0;
        if (times < paid.size - lost)
          return [`${who} was answered ${paid.size} payments, and ${times} moved`];
        if (times > paid.size && !hasNoOutcome)
          return [`${who} paid ${times} times, and was told of ${paid.size}`];
        return [];
      },
    );
  },

  /** A withdrawal is carried out once, in its time, and its owner is told the truth. */
  async orders({ records, chain, deepestReorganisation }, sql) {
    // What is told before it is final may be taken back: the owner is told that, too.
    const { rows } = await sql.query<{ key: string }>(
      "SELECT from_address || ' ' || nonce AS key FROM settlements WHERE kind = 'withdrawal' AND corrected_at IS NOT NULL",
    );
    const corrected = new Set(deepestReorganisation === 0 ? [] : rows.map(({ key }) => key));
    const used = new Map([...chain.ends()].map((end) => [`${end.from} ${end.nonce}`, end]));
    return records.orders.flatMap(
      ({ who, wallet, nonce, deadlineSeconds, answers, isRepeated }) => {
        const end = used.get(`${wallet} ${nonce}`);
        const at =
          end && chain.ledger.blocks.find(({ number }) => number === end.block)?.timestampSeconds;
        if (at !== undefined && at >= deadlineSeconds)
          return [`${who} was carried out ${at - deadlineSeconds} s after its time`];
        return answers.flatMap(({ status, body }) => {
          const code = wordOf(body["code"]);
          const isCorrected = corrected.has(`${wallet} ${nonce}`);
          if (status === 200 && !isCorrected && body["txHash"] !== end?.txHash)
            return [
              `${who} was answered ${String(body["txHash"])}, and the chain has ${String(end?.txHash)}`,
            ];
          if (code === "invalid_signature") return [`${who} was signed by its owner, and refused`];
          const isRefused = code === "settlement_failed" || (!isRepeated && REFUSED.has(code));
          return isRefused && end ? [`${who} was answered ${code}, and the money moved`] : [];
        });
      },
    );
  },

  /** The chain refuses no payment for lack of money: what is accepted is in the wallet. */
  async funds({ faults }, sql) {
    if (MONEY_IS_UNCERTAIN.some((kind) => faults.has(kind))) return [];
    const { rows } = await sql.query<{ id: string; why: string }>(
      `SELECT s.id, s.error_message AS why FROM settlements s JOIN payments p ON p.id = s.id
        WHERE s.status IN ('failed', 'expired') AND s.error_message ILIKE '%exceeds balance%'`,
    );
    return rows.map(({ id, why }) => `${id} was accepted, and its wallet could not pay: ${why}`);
  },

  /** Money that arrives is recorded once. */
  async incoming({ chain, agents }, sql) {
    const { rows } = await sql.query<{ key: string }>(
      `SELECT a.wallet_address || ' ' || p.tx_hash || ' ' || p.amount::text AS key
         FROM payments p JOIN agents a ON a.id = p.agent_id WHERE p.kind = 'incoming' AND p.status = 'settled'`,
    );
    const wallets = new Set<string>(agents.map(({ wallet }) => wallet));
    const left = new Map<string, number>();
    const count = (key: string, by: number) => left.set(key, (left.get(key) ?? 0) + by);
    for (const { to, value, txHash } of chain.transfers())
      if (wallets.has(to) && value > 0n) count(`${to} ${txHash} ${value}`, 1);
    for (const { key } of rows) count(key, -1);
    return [...left].flatMap(([key, times]) =>
      times === 0 ? [] : [`${times > 0 ? "not recorded" : "recorded, and did not arrive"}: ${key}`],
    );
  },
};

/** A wallet may have less than an endpoint said, or than it had in a block that was removed. */
const MONEY_IS_UNCERTAIN = ["reorganisation", "deepReorganisation", "endpointLies"];
/** Of an order that was sent with one key only. */
const REFUSED = new Set([
  "signature_expired",
  "insufficient_funds",
  "gas_budget_exhausted",
  "invalid_amount",
]);

// What must be true of gas, nonces, reconciliation, alarms and logs in the end.
import { wordOf } from "./host.ts";
import { inspect } from "node:util";
import { costOf } from "../../server/core/gas.ts";
import { ERRORS } from "../../server/errors.ts";
import { differingGasAccounts } from "../helpers/gas-accounts.ts";
import { useKey } from "./sales.ts";
import type { LogLine } from "./service.ts";
import type { Invariant } from "./kind.ts";
import { CHANNEL_ACCOUNT, NATIVE_PRICE_ATOMIC, RELAYERS, SECRETS, type World } from "./world.ts";

const isAfter =
  (fault: string) =>
  ({ faults }: World): boolean =>
    faults.has(fault);

/** Differences between ledger and chain that may be found, and what explains them. Every one ends by itself. */
const EXPLAINED: Readonly<Record<string, (world: World) => boolean>> = {
  payment_open: ({ faults }) => faults.size > 0,
  cancel_open: ({ faults }) => faults.size > 0,
  payment_elsewhere: isReorganised,
  payment_not_on_chain: isReorganised,
  payment_not_settled: isDeep,
  incoming_gone: isDeep,
  // The deposit was final, and its block is gone.
  channel_balance: isDeep,
  relayer_nonce: isAfter("nonceTaken"),
};

/** Error logs, which alert somebody, and what explains them. */
const ALARMS: readonly [RegExp, (world: World) => boolean][] = [
  [/^corrected an outcome/, (world) => isReorganised(world) || world.sales.isRelayedLater],
  [/^it is not known whether a settlement was accepted/, hasLostResponses],
  [/^a settlement was accepted, but its outcome could not/, hasLostResponses],
  [/^a batch could not be submitted/, hasLostResponses],
  [/^a reorganisation removed a block/, isReorganised],
  [/^reservation not released yet/, hasLostResponses],
  [/^the nodes? rejects? a/, isAfter("sendsFail")],
  [/^the chain lost our transactions/, isDeep],
  [/^the ledger differed from the chain/, isDeep],
  [/^a foreign transaction used one of our nonces/, isAfter("nonceTaken")],
  [/a transaction not in the ledger used a relayer nonce/, isAfter("nonceTaken")],
  [/cannot pay its gas|^No gas/, isAfter("relayersUnfunded")],
  [/^the token accepts transfers without effect/, isLied],
  [/^payments wait for chain data/, (world) => isLied(world) || isTakenUnproven(world)],
  // One endpoint stays on a branch whose newest block is minutes old, and a process that has just started has seen no other.
  [/^the clocks of the database and the chain are far apart/, isAfter("staleReturn")],
];

function isReorganised({ deepestReorganisation }: World): boolean {
  return deepestReorganisation > 0;
}
/** The database did something, and the process does not know what. */
function hasLostResponses({ faults }: World): boolean {
  return RESPONSES_LOST_BY.some((fault) => faults.has(fault));
}
/** When a suspended process goes on, what it had begun has timed out: its connections, for example. */
const RESPONSES_LOST_BY = [
  "suspended",
  "suspendedWithReservation",
  "acceptancesLost",
  "connectionsCut",
  "responsesLost",
  "databaseDown",
  "databaseSilent",
  "decisionsHeld",
  "rowsHeld",
];
/** Who took a nonce of ours is read from final blocks, and no block becomes final while there are no new ones. */
function isTakenUnproven({ faults }: World): boolean {
  return faults.has("nonceTaken") && faults.has("blocksStop");
}
/** An endpoint hid what the chain has. */
function isLied({ faults }: World): boolean {
  return ["endpointLies", "blindReturn", "staleReturn", "reorganisation"].some((fault) =>
    faults.has(fault),
  );
}
/** Deeper than what counts as final. */
function isDeep({ wasFinalityBroken }: World): boolean {
  return wasFinalityBroken;
}

/** One endpoint, one process, some connections: there are others. */
const WORKED_AROUND = new Set([
  "acceptancesLost",
  "clocks",
  "connectionsCut",
  "copied",
  "crash",
  "crashAtStep",
  "deployment",
  "endpointLies",
  "methodsMissing",
  "nonceTaken",
  "poolEmptied",
  "reorganisation",
  "responsesLost",
]);
const PATIENCE_MS = 60_000;

const SETTLED = new Set(["payment.settled", "withdrawal.settled", "agent.funded"]);

const logsOf = ({ services, dead }: World): (LogLine & { name: string })[] =>
  [...services, ...dead].flatMap(({ name, logs }) => logs.map((line) => ({ ...line, name })));

export const gasIsRight: Invariant = async (_world, sql) => {
  const rows = await differingGasAccounts(sql);
  return rows.map((row) => JSON.stringify(row));
};

export const ENGINE_INVARIANTS = {
  gas: gasIsRight,

  /** Each transaction of ours is known with its cost, no nonce is left out, and none is pending. */
  async transactions({ chain, wasFinalityBroken }, sql) {
    if (wasFinalityBroken) return [];
    const { rows } = await sql.query<{
      lane: `0x${string}`;
      nonce: string;
      status: string;
      hash: string | null;
      used: string | null;
      cost: string | null;
    }>(
      `SELECT lane_address AS lane, nonce::text, status, mined_hash AS hash, gas_used::text AS used, gas_cost::text AS cost
         FROM relayer_transactions ORDER BY lane_address, nonce`,
    );
    const stored = new Map(rows.map((row) => [`${row.lane} ${row.nonce}`, row]));
    const { rows: attempts } = await sql.query<{ hash: string }>(
      "SELECT hash FROM relayer_attempts",
    );
    const ours = new Set(attempts.map(({ hash }) => hash));
    const broken: string[] = [];
    for (const relayer of [...RELAYERS, CHANNEL_ACCOUNT])
      for (const { transaction, receipt, feeWei } of chain.transactionsOf(relayer)) {
        const key = `${relayer} ${transaction.nonce}`;
        const row = stored.get(key);
        stored.delete(key);
        // Signed by somebody else with the same key.
        if (transaction.raw === undefined) {
          if (row && row.status !== "replaced")
            broken.push(`${key} is ${row.status}, and another transaction used it`);
          continue;
        }
        if (!ours.has(transaction.hash)) broken.push(`${key} was sent and is not stored`);
        else if (row?.hash !== transaction.hash)
          broken.push(
            `${key} is ${row?.status} by ${row?.hash}, and the chain has ${transaction.hash}`,
          );
        else if (
          row.used !== String(Number(receipt.gasUsed)) ||
          row.cost !== String(costOf(feeWei, NATIVE_PRICE_ATOMIC))
        )
          broken.push(`${key} cost ${feeWei} wei, recorded is ${row.cost}`);
      }
    for (const [key, { status }] of stored)
      broken.push(`${key} is ${status}, and the chain has not used its nonce`);
    return broken;
  },

  async differences(world, sql) {
    const { rows } = await sql.query<{ kind: string; key: string; isOpen: boolean }>(
      `SELECT kind, key, healed_at IS NULL AS "isOpen" FROM ledger_differences`,
    );
    return rows.flatMap(({ kind, key, isOpen }) => [
      // This one ends when the lane has paid again for some time.
      ...(isOpen && kind !== "relayer_nonce" ? [`${kind} of ${key} is still open`] : []),
      ...(EXPLAINED[kind]?.(world) === true ? [] : [`${kind} of ${key} without a reason`]),
    ]);
  },

  /** What was final is never taken back, unless more blocks are replaced than count as final. */
  async final(world, sql) {
    if (isDeep(world)) return [];
    const { rows } = await sql.query<{ id: string; kind: string }>(
      `SELECT settlement_id AS id, kind FROM settlement_corrections
        WHERE before->>'finalAt' IS NOT NULL AND before->>'status' IN ('settled', 'expired')`,
    );
    return rows.map(({ id, kind }) => `${id} was final, and was corrected: ${kind}`);
  },

  /** The last notification of a payment says what the payment says. */
  async notifications(_world, sql) {
    const { rows } = await sql.query<{
      id: string;
      kind: string;
      status: string;
      isReceived: boolean;
      types: string[];
    }>(
      `SELECT p.id, p.kind, p.status,
              EXISTS (SELECT FROM webhooks w WHERE w.owner_id = a.owner_id) AS "isReceived",
              ARRAY(SELECT n.type FROM notifications n WHERE n.subject_id = p.id AND n.type <> 'payment.undelivered'
                     ORDER BY n.created_at) AS types
         FROM payments p JOIN agents a ON a.id = p.agent_id
        -- A deposit is not spent, and what a seller did not charge, or nobody knows whether it did, is not reported as paid.
        WHERE p.kind <> 'deposit' AND p.charged IS DISTINCT FROM 0 AND p.failure_code IS DISTINCT FROM 'charge_not_known'`,
    );
    return rows.flatMap(({ id, kind, status, isReceived, types }) => {
      const last = types.at(-1);
      const isSettled = last !== undefined && SETTLED.has(last);
      if (status === "settled" && isReceived && !isSettled)
        return [
          `payment ${id} (${kind}) is settled, and its owner was notified of: ${types.join(", ")}`,
        ];
      if (status === "settled" && last === "payment.failed")
        return [
          `payment ${id} (${kind}) is settled, and the last notification says that it failed`,
        ];
      if (status === "voided" && isSettled)
        return [
          `payment ${id} (${kind}) is voided, and the last notification says that it settled`,
        ];
      if (status === "blocked" && last !== "payment.blocked")
        return [
          `payment ${id} (${kind}) is blocked, and its owner was notified of: ${types.join(", ")}`,
        ];
      return [];
    });
  },

  /** Somebody is called only for a reason. */
  alarms(world) {
    const broken = logsOf(world)
      .filter(({ level }) => level === "error" || level === "fatal")
      .filter(
        ({ text }) =>
          !ALARMS.some(([known, isExplained]) => known.test(text) && isExplained(world)),
      )
      .map(
        ({ name, text, fields }) =>
          `${name}: ${text} ${inspect(fields, { breakLength: Infinity }).slice(0, 300)}`,
      );
    return [...new Set(broken)];
  },

  secrets(world) {
    return logsOf(world).flatMap(({ name, text, fields }) => {
      const shown = `${text} ${inspect(fields, { depth: 5, breakLength: Infinity })}`;
      return SECRETS.some((secret) => shown.includes(secret))
        ? [`${name} logs a secret: ${shown.slice(0, 300)}`]
        : [];
    });
  },

  /** Faults that the service works around cost no payment, and little time. */
  resilience(world) {
    const { intents, faults, chain } = world;
    if ([...faults].some((fault) => !WORKED_AROUND.has(fault))) return [];
    return intents.flatMap(({ who, from, amountAtomic, answers, tookMs = 0 }) => {
      const code = wordOf(answers.at(-1)?.body["code"]);
      // Payments of a removed block, which are sent again, may have taken the money that it was accepted with.
      const isTooPoor = isReorganised(world) && chain.balanceOf(from) < amountAtomic;
      if (code === "settlement_failed" && isTooPoor) return [];
      if (code === "settlement_failed") return [`${who} failed without a reason`];
      return tookMs > PATIENCE_MS ? [`${who} took ${(tookMs / 1_000).toFixed(0)} s`] : [];
    });
  },

  /** An accepted payment with money is sent before its time is over. */
  async expired({ faults, sales }, sql) {
    if (sales.isDisturbed || [...faults].some((fault) => !WORKED_AROUND.has(fault))) return [];
    const good = new Map(
      sales.presented.flatMap(({ isGood, from, nonce, who }) =>
        isGood ? [[useKey(from, nonce), who] as const] : [],
      ),
    );
    const { rows } = await sql.query<{ key: string }>(
      `SELECT lower(from_address || ' ' || nonce) AS key FROM settlements WHERE status = 'expired' AND relay`,
    );
    return rows.flatMap(({ key }) =>
      good.has(key) ? [`${good.get(key)} was accepted, and expired`] : [],
    );
  },

  /** Every refusal has a code of the catalogue, with its status. */
  refusals({ intents }) {
    return intents.flatMap(({ who, answers }) =>
      answers.flatMap(({ status, body }) => {
        if (status < 400 || body["code"] === "internal_error") return [];
        const known = ERRORS[String(body["code"]) as keyof typeof ERRORS] as
          | { status: number }
          | undefined;
        return known?.status === status
          ? []
          : [`${who} is answered ${status} ${String(body["code"])}`];
      }),
    );
  },
} satisfies Readonly<Record<string, Invariant>>;

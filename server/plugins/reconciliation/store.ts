/** The rows that are compared with the chain: claims of settlements, differences, and payments found on the chain. */
import type { Address, Hex } from "viem";
import type { Nonce, SchemeTerms } from "../../core/authorization.ts";
import { newId } from "../../core/ids.ts";
import { toJsonb } from "../../core/foreign-text.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { atomicOf, databaseNow, jsonOf, secondsAfter, type Db } from "../../infra/db/prisma.ts";
import { keyOf, type LedgerRow, type Finding } from "./compare.ts";
import type { CursorKey } from "./cursor-store.ts";

const idOf = ({ chainId, asset }: CursorKey) => ({ chainId: BigInt(chainId), asset });

const ROW = {
  id: true,
  kind: true,
  agentId: true,
  fromAddress: true,
  toAddress: true,
  asset: true,
  value: true,
  nonce: true,
  terms: true,
  status: true,
  txHash: true,
  blockNumber: true,
  blockHash: true,
} as const;

type StoredRow = Awaited<ReturnType<typeof claimsIn>>[number];

function toLedgerRow(stored: StoredRow): LedgerRow {
  const { fromAddress, toAddress, value, ...row } = stored;
  return {
    from: fromAddress as Address,
    to: toAddress as Address,
    value: atomicOf(value),
    ...(row as Omit<LedgerRow, "from" | "to" | "value">),
  };
}

const claimsIn = (db: Db, key: CursorKey, range: { from: bigint; to: bigint; limit: number }) =>
  db.settlement.findMany({
    where: {
      ...idOf(key),
      status: "settled",
      blockNumber: { gte: range.from, lte: range.to },
      // An allowance moves nothing.
      kind: { not: "allowance" },
    },
    select: ROW,
    take: range.limit,
  });

/** Rows that claim to be settled in these blocks. */
export async function readClaims(
  db: Db,
  key: CursorKey,
  range: { from: bigint; to: bigint; limit: number },
): Promise<LedgerRow[]> {
  return (await claimsIn(db, key, range)).map(toLedgerRow);
}

/** Settlements by their authorization. */
export async function readRows(
  sql: Sql,
  { chainId, asset }: CursorKey,
  authorizations: readonly { from: string; nonce: string }[],
): Promise<Map<string, LedgerRow>> {
  if (authorizations.length === 0) return new Map();
  // SQL: a join with the list of keys; Prisma would write hundreds of ORs.
  const { rows } = await sql.query<LedgerRow>({
    // LIMIT makes Postgres use the key's index, whatever the planner's statistics are.
    name: "book-rows",
    text: `SELECT s.id, s.kind, s.agent_id AS "agentId", s.from_address AS "from", s.to_address AS "to", s.asset, s.value,
            s.nonce, s.terms, s.status, s.tx_hash AS "txHash", s.block_number AS "blockNumber", s.block_hash AS "blockHash"
       FROM unnest($3::text[], $4::text[]) AS k (from_address, nonce)
      CROSS JOIN LATERAL (
        SELECT * FROM settlements s
         WHERE s.from_address = k.from_address AND s.chain_id = $1 AND s.asset = $2
           AND s.nonce IN (k.nonce, 'channel:' || k.nonce) LIMIT 1) AS s`,
    values: [
      chainId,
      asset,
      authorizations.map(({ from }) => from),
      authorizations.map(({ nonce }) => nonce),
    ],
  });
  return new Map(rows.map((row) => [keyOf(row), row]));
}

/**
 * Authorizations without an event that may have made this transfer: settled by it, or accepted before it and still
 * open, for so short a time after their validity that the engine may still prove them.
 */
export async function findMakers(
  sql: Sql,
  { chainId, asset }: CursorKey,
  transfer: { from: string; to: string; amountAtomic: bigint; txHash: string; blockNumber: bigint },
  proofSeconds: number,
): Promise<{ isOpen: boolean }[]> {
  // SQL: by the prefix of the nonce, and by the maximum in the terms.
  const { rows } = await sql.query<{ isOpen: boolean }>(
    `SELECT status IN ('queued', 'submitted') AS "isOpen" FROM settlements
      WHERE from_address = $1 AND chain_id = $2 AND asset = $3 AND nonce ^@ 'permit2:' AND to_address = $4
        AND (status IN ('queued', 'submitted') AND (value = $5 OR terms ? 'maximum' AND $5 < value)
               AND coalesce(accepted_block, 0) <= $7
               AND valid_before > extract(epoch FROM clock_timestamp()) - $8
             OR status = 'settled' AND tx_hash = $6 AND value = $5)`,
    [
      transfer.from,
      chainId,
      asset,
      transfer.to,
      String(transfer.amountAtomic),
      transfer.txHash,
      String(transfer.blockNumber),
      proofSeconds,
    ],
  );
  return rows;
}

/** Closes transfers that were unexplained, if payments proven later explain them: as many as there are payments. */
export async function closeExplained(sql: Sql, chainId: number): Promise<void> {
  // SQL: counts differences against the payments in their transactions.
  await sql.query(
    `UPDATE ledger_differences d SET healed_at = clock_timestamp()
       FROM (SELECT *, row_number() OVER (PARTITION BY tx_hash, detail->>'to', detail->>'amount' ORDER BY healed_at, key) AS place
               FROM ledger_differences WHERE chain_id = $1 AND kind = 'transfer_unknown') AS o
      WHERE d.chain_id = $1 AND d.kind = o.kind AND d.key = o.key AND d.healed_at IS NULL
        AND o.place <= (SELECT count(*) FROM settlements s
                         WHERE s.chain_id = $1 AND s.status = 'settled' AND s.block_number = o.block_number
                           AND s.tx_hash = o.tx_hash AND s.agent_id = o.agent_id AND s.nonce ^@ 'permit2:'
                           AND s.to_address = o.detail->>'to' AND s.value = (o.detail->>'amount')::numeric)`,
    [chainId],
  );
}

/** False for leases of other work, which are stored as lanes with an address that no key has. */
export const isLane = ({ address }: { address: string }): boolean => !/^0x0{39}/.test(address);

export async function readLaneNonces(
  sql: Sql,
  chainId: number,
): Promise<{ address: string; nextNonce: bigint; lookedNonce: bigint }[]> {
  // SQL: the server listens only after this, and would wait for Prisma's query compiler.
  const { rows } = await sql.query<{ address: string; nextNonce: bigint; lookedNonce: bigint }>(
    `SELECT address, next_nonce AS "nextNonce", looked_nonce AS "lookedNonce"
       FROM relayer_lanes WHERE chain_id = $1 ORDER BY address`,
    [chainId],
  );
  return rows.filter(isLane);
}

export async function readKnownBalances(
  db: Db,
  chainId: number,
  wallets: readonly Address[],
): Promise<Map<string, { atomic: bigint; blockNumber: bigint }>> {
  const rows = await db.ledgerBalance.findMany({
    where: { chainId: BigInt(chainId), wallet: { in: [...wallets] } },
  });
  return new Map(
    rows.map(({ wallet, balance, blockNumber }) => [
      wallet,
      { atomic: atomicOf(balance), blockNumber },
    ]),
  );
}

/** For rows whose transaction committed late. */
const MARGIN_SECONDS = 600;

/**
 * Wallets that were created since then or came from another cell, with a margin, and their agents; and wallets that
 * went to another cell.
 */
export async function walletsSince(
  db: Db,
  since: Date | undefined,
): Promise<{ wallets: [Address, string][]; gone: Address[]; now: Date }> {
  const now = await databaseNow(db);
  const after = since && secondsAfter(since, -MARGIN_SECONDS);
  const select = { id: true, walletAddress: true } as const;
  const isNew = after && {
    OR: [{ createdAt: { gt: after } }, { owner: { arrivedAt: { gt: after } } }],
  };
  const agents = await db.agent.findMany({ where: { owner: { movedAt: null }, ...isNew }, select });
  const moved = after
    ? await db.agent.findMany({ where: { owner: { movedAt: { gt: after } } }, select })
    : [];
  return {
    wallets: agents.map(({ id, walletAddress }) => [walletAddress as Address, id]),
    gone: moved.map(({ walletAddress }) => walletAddress as Address),
    now,
  };
}

/** True if the difference is new. Nonces of a lane whose difference is open are added to it. */
export async function noteDifference(db: Db, chainId: number, finding: Finding): Promise<boolean> {
  const { kind, key, detail } = finding;
  if (kind !== "relayer_nonce" || detail === undefined)
    return insertDifference(db, chainId, finding);
  const [lane = ""] = key.split(":");
  const [known] = await db.ledgerDifference.findMany({
    where: ofLane(chainId, lane),
    orderBy: { seenAt: "desc" },
    take: 1,
  });
  if (!known) return insertDifference(db, chainId, finding);
  const before = noncesOf(known.detail);
  const found = noncesOf(detail);
  // After a reorganisation the same nonces are read again.
  if (found.last <= before.last) return false;
  if (known.healedAt !== null) return insertDifference(db, chainId, finding);
  const { chainId: _chain, key: openKey } = known;
  await db.ledgerDifference.update({
    where: { chainId_kind_key: { chainId: BigInt(chainId), kind, key: openKey } },
    data: {
      blockNumber: finding.blockNumber,
      detail: jsonOf({
        ...(known.detail as object),
        lastNonce: found.last,
        count: before.count + found.count,
      }),
    },
  });
  return false;
}

const ofLane = (chainId: number, lane: string) => ({
  chainId: BigInt(chainId),
  kind: "relayer_nonce",
  key: { startsWith: `${lane}:` },
});

function noncesOf(detail: unknown): { last: bigint; count: number } {
  const { lastNonce, count } = detail as { lastNonce: string | number | bigint; count: number };
  return { last: BigInt(lastNonce), count };
}

/**
 * True if a difference of this lane was open for so long. How long they agree is known only in the process, which may
 * just have taken over from one that opened it.
 */
export async function closeLaneDifference(
  db: Db,
  chainId: number,
  { lane, openMs }: { lane: string; openMs: number },
): Promise<boolean> {
  const now = await databaseNow(db);
  const { count } = await db.ledgerDifference.updateMany({
    where: {
      ...ofLane(chainId, lane),
      healedAt: null,
      seenAt: { lte: secondsAfter(now, -openMs / 1_000) },
    },
    data: { healedAt: now },
  });
  return count > 0;
}

async function insertDifference(
  db: Db,
  chainId: number,
  { kind, key, agentId, txHash, blockNumber, row, transfer, nonce, detail }: Finding,
): Promise<boolean> {
  const facts = {
    ...(row && { settlementId: row.id, status: row.status, recordedTx: row.txHash }),
    ...(transfer && { to: transfer.to, amount: transfer.amountAtomic }),
    ...(nonce && { nonce }),
    ...detail,
  };
  const { count } = await db.ledgerDifference.createMany({
    data: [
      {
        chainId: BigInt(chainId),
        kind,
        key,
        agentId,
        txHash,
        blockNumber,
        detail: jsonOf(facts),
        seenAt: await databaseNow(db),
      },
    ],
    skipDuplicates: true,
  });
  return count === 1;
}

export async function closeDifference(
  db: Db,
  chainId: number,
  { kind, key }: Pick<Finding, "kind" | "key">,
): Promise<void> {
  await db.ledgerDifference.updateMany({
    where: { chainId: BigInt(chainId), kind, key, healedAt: null },
    data: { healedAt: await databaseNow(db) },
  });
}

/** Closes differences that an operator has investigated. Returns the closed ones. */
export async function closeManually(
  db: Db,
  of: { chainId: number; kind: string; key: string | undefined },
): Promise<{ key: string; agentId: string | null }[]> {
  const { chainId, kind, key } = of;
  return db.ledgerDifference.updateManyAndReturn({
    where: {
      chainId: BigInt(chainId),
      kind,
      healedAt: null,
      ...(key !== undefined && { key }),
    },
    data: { healedAt: await databaseNow(db) },
    select: { key: true, agentId: true },
  });
}

/** Inserts a payment that only the chain has; returns its id, or undefined if a row exists. */
export async function insertFound(
  sql: Sql,
  found: {
    agentId: string;
    chainId: number;
    asset: Address;
    payer: Address;
    payee: Address;
    amount: bigint;
    nonce: Nonce;
    terms: SchemeTerms | null;
    txHash: Hex;
    block: bigint;
    blockHash: Hex;
    at: Date;
  },
): Promise<string | undefined> {
  // SQL: settlement, payment and window in one function, under the agent's row lock.
  const { rows } = await sql.query<{ id: string | null }>("SELECT purser_ledger_found($1) AS id", [
    toJsonb({
      agent_id: found.agentId,
      payment_id: newId("pay"),
      chain_id: found.chainId,
      asset: found.asset,
      payer: found.payer,
      payee: found.payee,
      amount: found.amount,
      nonce: found.nonce,
      terms: found.terms ?? undefined,
      tx_hash: found.txHash,
      block: found.block,
      block_hash: found.blockHash,
      at: found.at.toISOString(),
      memo: "Found on chain: paid with this wallet's key, but not in this ledger.",
    }),
  ]);
  return rows[0]?.id ?? undefined;
}

/** Open differences that concern a row, which may have been corrected since. */
export async function readOpenOnRows(
  db: Db,
  chainId: number,
): Promise<Pick<Finding, "kind" | "key" | "txHash">[]> {
  const rows = await db.ledgerDifference.findMany({
    where: {
      chainId: BigInt(chainId),
      healedAt: null,
      kind: {
        in: [
          "payment_open",
          "payment_not_settled",
          "payment_elsewhere",
          "payment_not_on_chain",
          "cancel_open",
        ],
      },
    },
    select: { kind: true, key: true, txHash: true },
    take: 100,
  });
  return rows as Pick<Finding, "kind" | "key" | "txHash">[];
}

export const readOpenDifferences = (db: Db, ownerId: string) =>
  db.ledgerDifference.findMany({
    where: { healedAt: null, agent: { ownerId } },
    orderBy: { seenAt: "desc" },
    take: 100,
  });

export async function countOpenDifferences(
  db: Db,
): Promise<{ chainId: number; kind: string; count: number }[]> {
  const groups = await db.ledgerDifference.groupBy({
    by: ["chainId", "kind"],
    where: { healedAt: null },
    _count: true,
  });
  return groups.map(({ chainId, kind, _count }) => ({
    chainId: Number(chainId),
    kind,
    count: _count,
  }));
}

/** How long the comparison of a channel with the chain is overdue, for each chain with such a channel. */
export async function channelProofsOverdue(
  sql: Sql,
): Promise<{ chainId: number; seconds: number }[]> {
  // SQL: by the database's clock.
  const { rows } = await sql.query<{ chainId: bigint; seconds: number }>(
    `SELECT chain_id AS "chainId",
            extract(epoch FROM max(clock_timestamp() - GREATEST(prove_at, created_at)))::float8 AS seconds
       FROM channels WHERE prove_at <= clock_timestamp() GROUP BY chain_id`,
  );
  return rows.map(({ chainId, seconds }) => ({ chainId: Number(chainId), seconds }));
}

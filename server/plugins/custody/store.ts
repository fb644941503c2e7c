import type { Address } from "viem";
import type { StoredWallet, SealedWallet } from "./custody.ts";
import { Coalescer } from "../../core/shared-answers.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";

const SHARED = { maxBatch: 64, maxInFlight: 2 };

export async function insertWallet(
  tx: Db,
  args: { agentId: string; address: Address; sealed: SealedWallet },
): Promise<void> {
  const { agentId, address, sealed } = args;
  await tx.agentWallet.create({
    data: {
      agentId,
      address,
      kid: sealed.kid,
      wrappedDataKey: Uint8Array.from(sealed.wrappedDataKey),
      ciphertext: Uint8Array.from(sealed.ciphertext),
      updatedAt: await databaseNow(tx),
    },
  });
}

/** Read anew for each signature; signatures that are wanted together share a statement. */
export function walletsOf(sql: Sql): (agentId: string) => Promise<StoredWallet | undefined> {
  const lookups = new Coalescer<string, StoredWallet | undefined>(async (agentIds) => {
    // SQL: once per payment, between reserving and signing; prepared, and for all who sign together.
    const { rows } = await sql.query<StoredWallet & { agentId: string }>({
      name: "agent-wallets",
      text: `SELECT agent_id AS "agentId", address, kid, wrapped_data_key AS "wrappedDataKey", ciphertext
               FROM agent_wallets WHERE agent_id = ANY($1::text[])`,
      values: [agentIds],
    });
    const byAgent = new Map(rows.map(({ agentId, ...wallet }) => [agentId, wallet] as const));
    return agentIds.map((agentId) => byAgent.get(agentId));
  }, SHARED);
  return (agentId) => lookups.ask(agentId);
}

export interface WalletToRewrap extends StoredWallet {
  agentId: string;
}

/** Some wallets not yet under the active key, locked; those another run holds are skipped. */
export async function lockWalletsNotUnder(
  tx: Db,
  activeKid: string,
  limit: number,
): Promise<WalletToRewrap[]> {
  // SQL: row locks, and SKIP LOCKED for a second run.
  return tx.$queryRaw<WalletToRewrap[]>`
    SELECT agent_id AS "agentId", address, kid, wrapped_data_key AS "wrappedDataKey", ciphertext
      FROM agent_wallets WHERE kid <> ${activeKid} ORDER BY agent_id LIMIT ${limit} FOR UPDATE SKIP LOCKED`;
}

/** Only the wrappings change, and only of what was read. */
export async function updateWrappings(
  tx: Db,
  wallets: readonly { agentId: string; fromKid: string; sealed: SealedWallet }[],
): Promise<void> {
  const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64");
  // SQL: each wallet gets a value of its own, in one statement for the batch that is locked.
  const count = await tx.$executeRaw`
    UPDATE agent_wallets w SET kid = r.kid, wrapped_data_key = decode(r.wrapped, 'base64'), updated_at = now()
      FROM unnest(${wallets.map(({ agentId }) => agentId)}::text[],
                  ${wallets.map(({ fromKid }) => fromKid)}::text[],
                  ${wallets.map(({ sealed }) => sealed.kid)}::text[],
                  ${wallets.map(({ sealed }) => base64(sealed.wrappedDataKey))}::text[])
           AS r (agent_id, from_kid, kid, wrapped)
     WHERE w.agent_id = r.agent_id AND w.kid = r.from_kid`;
  if (count !== wallets.length) throw new Error("a wallet changed while it was locked");
}

export async function countWalletsByKid(db: Db): Promise<Map<string, number>> {
  const groups = await db.agentWallet.groupBy({ by: "kid", _count: true });
  return new Map(groups.map(({ kid, _count }) => [kid, _count]));
}

/** The master keys wallets are under, by as many index steps as there are keys. */
export async function kidsInUse(db: Db): Promise<string[]> {
  // SQL: a recursive skip over the index; Prisma's `distinct` reads every wallet.
  const rows = await db.$queryRaw<{ kid: string }[]>`
    WITH RECURSIVE kids AS (
      SELECT min(kid) AS kid FROM agent_wallets
      UNION ALL
      SELECT (SELECT min(w.kid) FROM agent_wallets w WHERE w.kid > kids.kid) FROM kids WHERE kids.kid IS NOT NULL
    ) SELECT kid FROM kids WHERE kid IS NOT NULL`;
  return rows.map(({ kid }) => kid);
}

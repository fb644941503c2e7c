import type { Address, Hex } from "viem";
import { agentSql, payeeJsonSql, payeeSql, readRules } from "./columns.ts";
import type { Evidence, LoadedWallet, PaidAt, SignedDocument, WithdrawalRow } from "./covers.ts";
import type { Seal, SealedWallet, WalletName } from "./envelope.ts";
import { Coalescer } from "../../core/shared-answers.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";
import { latestSecond } from "../owners/store.ts";
import { kidOfSealed } from "./secret-box.ts";

const SHARED = { maxBatch: 64, maxInFlight: 2 };

/** A wallet with its seal, and the version of the policy document that the sealed rules need. */
export interface ResealedWallet {
  sealed: SealedWallet;
  seal: Seal;
  rulesVersion: number;
}

const columnsOf = ({ sealed, seal, rulesVersion }: ResealedWallet) => ({
  kid: sealed.kid,
  wrappedDataKey: Uint8Array.from(sealed.wrappedDataKey),
  ciphertext: Uint8Array.from(sealed.ciphertext),
  policyDigest: seal.policyDigest,
  rulesDigest: seal.rulesDigest,
  revision: seal.revision,
  rulesVersion,
});

export async function insertWallet(
  tx: Db,
  { agentId, address, ...resealed }: ResealedWallet & { agentId: string; address: Address },
): Promise<void> {
  await tx.agentWallet.create({
    data: { agentId, address, ...columnsOf(resealed), updatedAt: await databaseNow(tx) },
  });
}

/** Locks a wallet for a change of its seal; excludes a concurrent rotation of master keys. */
export async function lockWallet(
  tx: Db,
  agentId: string,
): Promise<
  | (SealedWallet &
      Omit<Seal, "ownerAddress" | "ownerChainId"> & { address: Address; rulesVersion: number })
  | undefined
> {
  // SQL: a row lock, which Prisma does not have.
  await tx.$queryRaw`SELECT 1 FROM agent_wallets WHERE agent_id = ${agentId} FOR UPDATE`;
  const row = await tx.agentWallet.findUnique({ where: { agentId } });
  if (row === null) return undefined;
  return {
    address: row.address as Address,
    kid: row.kid,
    wrappedDataKey: row.wrappedDataKey,
    ciphertext: row.ciphertext,
    policyDigest: row.policyDigest as Hex,
    rulesDigest: row.rulesDigest as Hex,
    revision: row.revision,
    rulesVersion: row.rulesVersion,
  };
}

/** The version of the policy document that the sealed rules need; 1 if there is no wallet yet. */
export async function rulesVersionOf(db: Db, agentId: string): Promise<number> {
  const row = await db.agentWallet.findUnique({
    where: { agentId },
    select: { rulesVersion: true },
  });
  return row?.rulesVersion ?? 1;
}

export async function updateSeal(tx: Db, agentId: string, resealed: ResealedWallet): Promise<void> {
  const updatedAt = await databaseNow(tx);
  await tx.agentWallet.update({
    where: { agentId },
    data: { ...columnsOf(resealed), updatedAt },
  });
}

/** A wallet, its seal, and the columns that decisions use, in one snapshot. */
const LOADED = `
  w.agent_id AS "agentId", w.address, w.kid, w.wrapped_data_key AS "wrappedDataKey", w.ciphertext,
  w.policy_digest AS "policyDigest", w.rules_digest AS "rulesDigest", w.revision,
  o.address AS "ownerAddress", o.chain_id::int AS "ownerChainId",
  w.rules_version::int AS "rulesVersion", ${agentSql("a")} AS columns,
  a.paused_by IS NOT NULL AS "isHeld",
  CASE WHEN l.address IS NOT NULL THEN ${payeeSql("l")} END AS "payeeColumns",
  (SELECT max(p.version) FROM owner_orders p WHERE p.agent_id = w.agent_id AND p.used_at IS NOT NULL) AS "latestVersion",
  extract(epoch FROM clock_timestamp())::bigint AS "nowSeconds"`;
const FROM = `
  JOIN agent_wallets w ON w.agent_id = ask.agent_id
  JOIN agents a ON a.id = w.agent_id
  JOIN owners o ON o.id = a.owner_id
  LEFT JOIN LATERAL (
    SELECT e.* FROM allowlist_entries e
     WHERE e.agent_id = w.agent_id AND e.address = ask.payee AND e.site IN ('', ask.site)
     ORDER BY e.site DESC LIMIT 1) l ON true`;

/** Read for each signature; concurrent signatures share a statement. */
export function walletsOf(sql: Sql): (wanted: PaidAt) => Promise<LoadedWallet | undefined> {
  const lookups = new Coalescer<PaidAt, LoadedWallet | undefined>(async (wanted) => {
    // SQL: once per payment, between reservation and signature; prepared, and shared by all concurrent signatures.
    const { rows } = await sql.query<LoadedWallet & { place: number }>({
      name: "sealed-wallets",
      text: `SELECT ask.place::int AS place, ${LOADED}
               FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS ask (agent_id, payee, site, place) ${FROM}`,
      values: [
        wanted.map(({ agentId }) => agentId),
        wanted.map(({ payee }) => payee),
        wanted.map(({ site }) => site),
      ],
    });
    const byPlace = new Map(rows.map(({ place, ...wallet }) => [place, wallet] as const));
    return wanted.map((_one, index) => byPlace.get(index + 1));
  }, SHARED);
  return (wanted) => lookups.fetch(wanted);
}

interface RawEvidence extends LoadedWallet {
  payees: (string | null)[][] | null;
  policy: SignedDocument | null;
}

/** The same with all rules and the signed policy: for a seal that is new to this process. */
export async function readEvidence(sql: Sql, wanted: PaidAt): Promise<Evidence | undefined> {
  // SQL: wallet, rules and policy in one snapshot; numbers as text, because JSON numbers would lose digits.
  const { rows } = await sql.query<RawEvidence>(
    `SELECT ${LOADED},
            (SELECT jsonb_agg(${payeeJsonSql("e")})
               FROM allowlist_entries e WHERE e.agent_id = w.agent_id) AS payees,
            (SELECT jsonb_build_object('document', d.document, 'digest', d.digest, 'chainId', d.chain_id,
                      'signature', '0x' || encode(d.signature, 'hex'))
               FROM owner_orders d
              WHERE d.agent_id = w.agent_id AND d.digest = w.policy_digest AND d.kind = 'AgentPolicy'
                AND d.used_at IS NOT NULL LIMIT 1) AS policy
       FROM (SELECT $1::text AS agent_id, $2::text AS payee, $3::text AS site) AS ask ${FROM}`,
    [wanted.agentId, wanted.payee, wanted.site],
  );
  const row = rows[0];
  if (!row) return undefined;
  const { payees, ...wallet } = row;
  return { ...wallet, rules: readRules(wallet.columns, payees ?? []) };
}

export async function findWithdrawal(
  sql: Sql,
  agentId: string,
  nonce: Hex,
): Promise<WithdrawalRow | undefined> {
  // SQL: on the payment path, like the reservation that wrote it.
  const { rows } = await sql.query<Omit<WithdrawalRow, "signature"> & { signature: Buffer }>(
    `SELECT to_address AS "to", amount AS "amountAtomic", deadline AS "deadlineSeconds", signature
       FROM withdrawal_orders WHERE agent_id = $1 AND nonce = $2`,
    [agentId, nonce],
  );
  return rows[0] && { ...rows[0], signature: hexOf(rows[0].signature) };
}

const hexOf = (bytes: Uint8Array): Hex => `0x${Buffer.from(bytes).toString("hex")}`;

/** The owner's approval of one payment. */
export async function findApproval(
  db: Db,
  agentId: string,
  approvalId: string,
): Promise<SignedDocument | undefined> {
  const row = await db.ownerOrder.findUnique({ where: { approvalId, agentId } });
  if (row?.kind !== "ApprovePayment" || row.signature === null) return undefined;
  return {
    document: row.document,
    digest: row.digest as Hex,
    signature: hexOf(row.signature),
    chainId: Number(row.chainId),
  };
}

/** The policy of this agent with this digest, as its owner signed it. */
export async function findPolicy(
  db: Db,
  agentId: string,
  digest: Hex,
): Promise<SignedDocument | undefined> {
  const row = await db.ownerOrder.findFirst({
    where: { agentId, digest, kind: "AgentPolicy", usedAt: { not: null } },
  });
  if (!row?.signature) return undefined;
  return {
    document: row.document,
    digest: row.digest as Hex,
    signature: hexOf(row.signature),
    chainId: Number(row.chainId),
  };
}

/** The newest order in which the owner of this agent named a second wallet. */
export async function findSecond(db: Db, agentId: string): Promise<SignedDocument | undefined> {
  const agent = await db.agent.findUnique({ where: { id: agentId }, select: { ownerId: true } });
  const row = agent && (await latestSecond(db, agent.ownerId));
  if (!row?.signature) return undefined;
  return {
    document: row.document,
    digest: row.digest as Hex,
    signature: hexOf(row.signature),
    chainId: Number(row.chainId),
  };
}

/** Notifies the owner of this agent. */
export async function notifyOwner(sql: Sql, agentId: string): Promise<void> {
  // SQL: all events are written by this function.
  await sql.query(
    "SELECT purser_emit(a.owner_id, 'alarm', a.id, a.id) FROM agents a WHERE a.id = $1",
    [agentId],
  );
}

type WalletToRewrap = SealedWallet & WalletName;

/** Some wallets that are not under the active key, locked; those that another run has locked are skipped. */
export async function lockWalletsNotUnder(
  tx: Db,
  activeKid: string,
  limit: number,
): Promise<WalletToRewrap[]> {
  // SQL: row locks, and SKIP LOCKED for a concurrent run.
  return tx.$queryRaw<WalletToRewrap[]>`
    SELECT w.agent_id AS "agentId", w.address, w.kid, w.wrapped_data_key AS "wrappedDataKey", w.ciphertext,
           w.policy_digest AS "policyDigest", w.rules_digest AS "rulesDigest", w.revision,
           o.address AS "ownerAddress", o.chain_id::int AS "ownerChainId"
      FROM agent_wallets w JOIN agents a ON a.id = w.agent_id JOIN owners o ON o.id = a.owner_id
     WHERE w.kid <> ${activeKid} ORDER BY w.agent_id LIMIT ${limit} FOR UPDATE OF w SKIP LOCKED`;
}

/** Changes only the wrapped keys, and only if they are still what was read. */
export async function updateWrappings(
  tx: Db,
  wallets: readonly { agentId: string; fromKid: string; sealed: SealedWallet }[],
): Promise<void> {
  const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString("base64");
  // SQL: a different value for each wallet, in one statement for the locked batch.
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

/** The master keys of all wallets, in as many index steps as there are keys. */
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

/** A secret that replicas share; the first caller creates it. */
export async function findServiceSecret(
  sql: Sql,
  purpose: string,
): Promise<Uint8Array | undefined> {
  // SQL: the server listens only after this, and would wait for Prisma's query compiler.
  const { rows } = await sql.query<{ sealed: Uint8Array }>(
    "SELECT sealed FROM service_secrets WHERE purpose = $1",
    [purpose],
  );
  return rows[0]?.sealed;
}

/** False if another replica was faster, or the stored secret is no longer `instead`. */
export async function keepServiceSecret(
  db: Db,
  purpose: string,
  sealed: Uint8Array,
  instead: Uint8Array | undefined,
): Promise<boolean> {
  const bytes = Uint8Array.from(sealed);
  if (instead === undefined) {
    const { count } = await db.serviceSecret.createMany({
      data: [{ purpose, sealed: bytes }],
      skipDuplicates: true,
    });
    return count === 1;
  }
  const { count } = await db.serviceSecret.updateMany({
    where: { purpose, sealed: Uint8Array.from(instead) },
    data: { sealed: bytes },
  });
  return count === 1;
}

export const listServiceSecrets = (db: Db): Promise<{ purpose: string; sealed: Uint8Array }[]> =>
  db.serviceSecret.findMany({ select: { purpose: true, sealed: true } });

/** The master keys of small secrets: those of webhooks, by steps of an index, and the service's own few. */
export async function kidsOfSecrets(db: Db): Promise<string[]> {
  // SQL: a recursive skip over the index; Prisma's `distinct` reads every webhook.
  const webhooks = await db.$queryRaw<{ kid: string }[]>`
    WITH RECURSIVE kids AS (
      SELECT min(secret_kid) AS kid FROM webhooks
      UNION ALL
      SELECT (SELECT min(w.secret_kid) FROM webhooks w WHERE w.secret_kid > kids.kid) FROM kids WHERE kids.kid IS NOT NULL
    ) SELECT kid FROM kids WHERE kid IS NOT NULL`;
  const own = await listServiceSecrets(db);
  return [
    ...new Set([
      ...webhooks.map(({ kid }) => kid),
      ...own.map(({ sealed }) => kidOfSealed(sealed)),
    ]),
  ];
}

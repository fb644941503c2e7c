/**
 * Whether passkeys work in the new cell. A passkey belongs to a domain, which its device names in each signature. The
 * browser names the page, too, and a cell accepts new signatures of its own pages only; what was checked before is not
 * compared with pages again, with the exceptions below.
 */
import { request } from "undici";
import { keyAtDomain, isSameKey, PASSKEYS_CHAIN, type PublicKey } from "../core/passkeys.ts";
import { TEAMS_CHAIN } from "../core/teams.ts";
import type { Move, Side } from "./cells.ts";
import { withIds, type Moving } from "./moving.ts";

/** In bytes, and in the text of a signature that waits for others. */
const PASSKEY = "706173736b657931";
const byPasskey = (signature: string): string =>
  `position('\\x${PASSKEY}'::bytea IN ${signature}) > 0`;

/** Signatures of passkeys that are compared with a cell's pages when they are used, and not only when they are made. */
export const SIGNED_BY_PASSKEYS: readonly { what: string; sql: string; hint: string }[] = [
  {
    what: "approvals by passkeys that were not used yet",
    sql: `SELECT count(*) FROM approvals a JOIN owner_orders r ON r.approval_id = a.id AND r.used_at IS NOT NULL
      WHERE a.owner_id = ANY ($owners) AND a.state = 'granted' AND a.permit_until > extract(epoch FROM now())
        AND ${byPasskey("r.signature")}`,
    hint: "each ends within an hour, or the owner declines it",
  },
  {
    what: "requests of a team that a passkey signed, and that wait for more signatures",
    sql: `SELECT count(*) FROM waiting_orders w
      WHERE w.team_id = ANY ($owners) AND w.end_reason IS NULL AND w.expires_at > now()
        AND position('${PASSKEY}' IN lower(w.signature)) > 0`,
    hint: "the members sign them, or they end",
  },
  {
    what: "recovery wallets of teams that were named with passkeys",
    sql: `SELECT count(*) FROM owners o, LATERAL (
          SELECT r.document, r.signature FROM owner_orders r
           WHERE r.owner_id = o.id AND r.kind = 'SecondWallet' AND r.used_at IS NOT NULL
           ORDER BY r.used_at DESC LIMIT 1) AS s
      WHERE o.id = ANY ($owners) AND o.chain_id = ${TEAMS_CHAIN} AND ${byPasskey("s.signature")}
        AND lower(s.document->>'second') <> '0x' || repeat('0', 40)`,
    hint: "the team removes it, and names it again in the new cell",
  },
];

interface MovingPasskey extends PublicKey {
  id: string;
  ownerId: string;
  name: string;
  status: "active" | "removed";
}

/** Why their passkeys would not work in the new cell; empty if they do, or if there are none. */
export async function reasonsOfPasskeys(move: Move, moving: Moving): Promise<string[]> {
  const { from, to } = move;
  // SQL: conditions on the ids that move, as in the other files of this command.
  const { rows: passkeys } = await from.pool.query<MovingPasskey>(
    withIds(
      `SELECT id, owner_id AS "ownerId", name, x, y, status FROM passkeys
        WHERE owner_id = ANY ($owners) AND status <> 'offered' ORDER BY created_at, id`,
      moving,
    ),
  );
  // SQL: as above.
  const { rowCount: accounts } = await from.pool.query(
    withIds(
      `SELECT 1 FROM owners o WHERE o.id = ANY ($owners) AND o.chain_id = ${PASSKEYS_CHAIN}`,
      moving,
    ),
  );
  const known = await knownThere(to, passkeys);
  const active = passkeys.filter(({ status }) => status === "active");
  if (active.length === 0 && accounts === 0) return known;
  const domains = await Promise.all([domainOf(from), domainOf(to)]);
  const silent = [from, to].filter((_, place) => domains[place] === undefined);
  if (silent.length > 0)
    return silent.map(
      ({ cell }) =>
        `passkeys are among what moves, and the cell ${cell} does not answer which domain its passkeys belong to`,
    );
  const [domain, next] = domains;
  if (!domain || domain !== next)
    return [
      `passkeys belong to ${domain || "no domain"} in this cell, and to ${next || "no domain"} in the new one: both need the same PASSKEY_DOMAIN`,
    ];
  return [...known, ...(await unproven(from, { passkeys: active, domain }))];
}

/** As the running cell says. Undefined: it does not answer. Empty: it has no passkeys. */
async function domainOf({ config, cell }: Side): Promise<string | undefined> {
  const place = config.cells?.cells.find(({ id }) => id === cell)?.url ?? config.publicUrl;
  try {
    const { statusCode, body } = await request(`${place}/api/info`, {
      signal: AbortSignal.timeout(5_000),
    });
    const { passkeys } = (await body.json()) as { passkeys: { domain: string } | null };
    return statusCode === 200 ? (passkeys?.domain ?? "") : undefined;
  } catch {
    return undefined;
  }
}

/** A passkey that was made before the cell had this domain works nowhere any more. One that works has signed something. */
async function unproven(
  { pool }: Side,
  { passkeys, domain }: { passkeys: readonly MovingPasskey[]; domain: string },
): Promise<string[]> {
  // SQL: as above.
  const { rows } = await pool.query<{ ownerId: string; signature: string }>(
    `SELECT owner_id AS "ownerId", '0x' || encode(signature, 'hex') AS signature FROM owner_orders
      WHERE owner_id = ANY ($1::text[]) AND used_at IS NOT NULL
     UNION ALL
     SELECT owner_id, body::jsonb->'proof'->>'signature' FROM audit_log
      WHERE owner_id = ANY ($1::text[]) AND action = 'session.created' AND body::jsonb->'proof'->>'signature' IS NOT NULL`,
    [[...new Set(passkeys.map(({ ownerId }) => ownerId))]],
  );
  const proven = rows.flatMap(({ signature }) => keyAtDomain(signature, domain) ?? []);
  return passkeys
    .filter((passkey) => !proven.some((key) => isSameKey(key, passkey)))
    .map(
      ({ name }) =>
        `the passkey "${name}" has signed nothing for ${domain} yet: its owner signs in with it once, or removes it`,
    );
}

/** One passkey is of one account. */
async function knownThere({ pool }: Side, passkeys: readonly MovingPasskey[]): Promise<string[]> {
  // SQL: as above.
  const { rows } = await pool.query<{ name: string }>(
    `SELECT m.name FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS m (id, name, x, y)
      WHERE EXISTS (SELECT FROM passkeys p WHERE p.id = m.id OR (p.x = m.x AND p.y = m.y))`,
    [
      passkeys.map(({ id }) => id),
      passkeys.map(({ name }) => name),
      passkeys.map(({ x }) => x),
      passkeys.map(({ y }) => y),
    ],
  );
  return rows.map(({ name }) => `the new cell has the passkey "${name}" of another account`);
}

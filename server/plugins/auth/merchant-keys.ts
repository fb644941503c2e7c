/** API keys for verify and settle: the operator's keys, and merchants' own keys. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { FastifyInstance, FastifyRequest } from "fastify";
import type { Address } from "viem";
import { accountName, isClosed } from "../../core/merchant-settings.ts";
import { ApiError } from "../../errors.ts";
import { Coalescer } from "../../core/shared-answers.ts";
import type { Sql } from "../../infra/db/pool.ts";
import { assertHere, type Whereabouts } from "./moved.ts";
import {
  assertOurCell,
  cellIn,
  createKey,
  hashSecret,
  isSecretShape,
  MERCHANT_KEY_PREFIX,
} from "./secrets.ts";

export const createMerchantKey = (cell?: string) => createKey(MERCHANT_KEY_PREFIX, cell);

interface MerchantKeyHolder extends Whereabouts {
  keyId: string;
  ownerId: string;
  address: Address;
  chainId: number;
  revoked: boolean;
  isUseStale: boolean;
}

type StoredHolder = Omit<MerchantKeyHolder, "chainId"> & { chainId: bigint; hash: Buffer };

/** No cache, so that a key revoked on one replica is refused by all at once. */
function merchantKeyHolders(sql: Sql): (hash: Buffer) => Promise<MerchantKeyHolder | undefined> {
  const lookups = new Coalescer<Buffer, MerchantKeyHolder | undefined>(
    async (hashes) => {
      // SQL: part of each verify and settle with a key; prepared, joined, and shared by concurrent requests.
      const { rows } = await sql.query<StoredHolder>({
        name: "merchant-key-holders",
        text: `SELECT k.key_hash AS hash, k.id AS "keyId", k.owner_id AS "ownerId", o.address,
                      o.chain_id AS "chainId", k.revoked_at IS NOT NULL AS revoked,
                      coalesce(k.last_used_at < now() - interval '1 minute', true) AS "isUseStale",
                      o.moved_to AS "movedTo", o.moved_url AS "movedUrl"
                 FROM merchant_keys k JOIN owners o ON o.id = k.owner_id
                WHERE k.key_hash = ANY($1::bytea[])`,
        values: [hashes],
      });
      const byHash = new Map(
        rows.map(({ hash, ...holder }) => [
          hash.toString("hex"),
          { ...holder, chainId: Number(holder.chainId) },
        ]),
      );
      return hashes.map((hash) => byHash.get(hash.toString("hex")));
    },
    { maxBatch: 64, maxInFlight: 2 },
  );
  return (hash) => lookups.fetch(hash);
}

/** At most once a minute per key; never waits for a locked row. */
async function noteMerchantKeyUse(sql: Sql, keyId: string): Promise<void> {
  // SQL: SKIP LOCKED, so that a busy key's requests never wait for one another.
  await sql.query(
    `UPDATE merchant_keys SET last_used_at = now()
      WHERE id = (SELECT id FROM merchant_keys
                   WHERE id = $1 AND coalesce(last_used_at < now() - interval '1 minute', true)
                     FOR UPDATE SKIP LOCKED)`,
    [keyId],
  );
}

/**
 * Authentication of verify and settle. Third parties may settle unless the operator restricted access
 * (FACILITATOR_API_KEYS, MERCHANTS). FACILITATOR_OPEN allows them without a key nevertheless, charged to the third
 * parties' gas share and not to the merchants'. Everybody who signs in can create a merchant's key, so by itself it
 * grants no more than third parties have: no access to a closed facilitator, no merchants' gas, and no exemption from
 * the limits of an address. That needs the operator to admit the wallet.
 */
export function proveFacilitatorKeys(app: FastifyInstance): void {
  const { facilitatorApiKeys, facilitatorOpen, merchants } = app.config;
  const digests = facilitatorApiKeys.map(digest);
  const admitted = new Set(merchants);
  const isClosedHere = isClosed(app.config);
  const holderOf = merchantKeyHolders(app.pool);
  app.decorate("isAdmittedMerchant", (account) => admitted.has(accountName(account)));

  const isOpenToAll = digests.length === 0 && !isClosedHere;

  app.authenticators.set("facilitator", (request) => {
    const { authorization } = request.headers;
    if (authorization === undefined && (isOpenToAll || facilitatorOpen)) return undefined;
    return prove(request, authorization);
  });

  async function prove(request: FastifyRequest, authorization: string | undefined): Promise<void> {
    const [, key] = /^Bearer ([^\s]+)$/i.exec(authorization ?? "") ?? [];
    if (key !== undefined && isSecretShape(MERCHANT_KEY_PREFIX, key))
      return proveMerchantKey(request, key);
    if (isOpenToAll) return;
    if (key === undefined)
      throw new ApiError("missing_api_key", {
        ...FACILITATOR_CHALLENGE,
        detail: "Send `Authorization: Bearer <FACILITATOR_API_KEY>` to this facilitator.",
      });
    const keyHash = digest(key);
    const known = await app.proveCredential(request, keyHash, {
      // All are compared, each in constant time, so that the response time does not reveal a near match.
      look: () => digests.filter((candidate) => timingSafeEqual(candidate, keyHash)).length > 0,
      isProven: (found) => found,
    });
    if (!known) throw new ApiError("invalid_api_key", FACILITATOR_CHALLENGE);
    request.caller = { kind: "merchant", id: keyHash.toString("base64url") };
  }

  async function proveMerchantKey(request: FastifyRequest, key: string): Promise<void> {
    const hash = hashSecret(key);
    const holder = await app.proveCredential(request, hash, {
      look: () => holderOf(hash),
      isProven: (found) => found !== undefined && !found.revoked,
    });
    if (!holder) {
      assertOurCell(app.config.cells?.self, cellIn(MERCHANT_KEY_PREFIX, key));
      throw new ApiError("invalid_api_key", FACILITATOR_CHALLENGE);
    }
    if (holder.revoked) throw new ApiError("api_key_revoked", FACILITATOR_CHALLENGE);
    assertHere(holder);
    const { keyId, ownerId } = holder;
    const isAdmitted = app.isAdmittedMerchant(holder);
    if (isClosedHere && !isAdmitted) throw new ApiError("merchant_not_admitted");
    if (isAdmitted) request.caller = { kind: "merchant", id: ownerId };
    if (holder.isUseStale)
      noteMerchantKeyUse(app.pool, keyId).catch((error: unknown) =>
        app.log.warn({ err: error, keyId }, "the last use of a key was not recorded"),
      );
  }
}

const FACILITATOR_CHALLENGE = {
  headers: { "www-authenticate": 'Bearer realm="purser facilitator"' },
};

declare module "fastify" {
  interface FastifyInstance {
    /** Whether the operator admitted this account as a merchant. */
    isAdmittedMerchant(account: { address: string; chainId: number }): boolean;
  }
}

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();

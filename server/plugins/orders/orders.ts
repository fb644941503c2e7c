/**
 * The mechanism for everything that needs the owner's wallet: a request without the signature returns the order to
 * sign; the same request with the signed order is executed once, in one transaction with its changes.
 */
import { randomBytes } from "node:crypto";
import type { Hex } from "viem";
import {
  MAX_ORDER_SECONDS,
  TEAM_ORDER_SECONDS,
  FORMS,
  orderDigest,
  readOrder,
  REQUESTED_FORM,
  typedDataOf,
  type OrderKind,
  type Orders,
} from "../../core/orders.ts";
import { passkeyThatSigned } from "../../core/passkeys.ts";
import { purposeOf, readTeamSignature, TEAMS_CHAIN } from "../../core/teams.ts";
import { refusingUnknownVersion } from "../../core/policy-version.ts";
import { ApiError } from "../../errors.ts";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";
import {
  countPasskeyUse,
  findOrder,
  insertPrepared,
  insertUsed,
  KEPT_BYTES_PER_DAY,
  takeQuota,
  type PreparedWallet,
} from "./store.ts";
import type { Screening } from "../screening/screening.ts";
import type { Checked, OrderOwner, Signed, SignedOrder } from "./types.ts";
import { lockMembers } from "./team-store.ts";
import { assertNotEnded, endOutdated, endWaiting, keepWaiting } from "./waiting.ts";

/** The order that this request needs, without its nonce and deadline. */
export interface Draft<K extends OrderKind = OrderKind> {
  kind: K;
  agentId: string;
  chainId: number;
  version: number | null;
  /** How long the order is valid; by default `orderSeconds`. */
  validSeconds?: number;
  /** When what it is about came to be: an order that was requested before is about something else. */
  since?: Date;
  build(single: { nonce: Hex; deadlineSeconds: bigint }): Orders[K];
  /** The wallet of an agent that is to be created. */
  wallet?: PreparedWallet;
}

export type { OrderOwner, SignedOrder } from "./types.ts";

const secondOf = (time: Date): number => Math.floor(time.getTime() / 1000);

export const spanOf = (seconds: number): string =>
  seconds < 86_400 ? `${seconds / 60} minutes` : `${seconds / 86_400} days`;

/** How long an order may take to be signed. */
export const orderSeconds = ({ chainId }: { chainId: number }): number =>
  chainId === TEAMS_CHAIN ? TEAM_ORDER_SECONDS : MAX_ORDER_SECONDS;

interface OrdersDeps {
  prisma: { $transaction<T>(work: (tx: Db) => Promise<T>): Promise<T> };
  checkSignature(owner: OrderOwner, signed: Signed): Promise<Checked>;
  /** Undefined: addresses are not screened. */
  screening?: Pick<Screening, "assertMaySign"> | undefined;
}

/** Thrown in a transaction, which is rolled back: `OwnerOrders.answering` turns it into the order to sign. */
export class SignatureNeeded extends Error {
  readonly draft: Draft;
  readonly code: "owner_signature_required" | "policy_changed";
  /** The nonce of the order that no longer says what the request would do. */
  readonly outdated: Hex | undefined;

  constructor(draft: Draft, code: SignatureNeeded["code"], outdated?: Hex) {
    super(code);
    this.draft = draft;
    this.code = code;
    this.outdated = outdated;
  }
}

/** Thrown in a transaction, which is rolled back: the order is right, and waits for more members of the team. */
class SignaturesMissing extends Error {
  readonly signed: SignedOrder;

  constructor(signed: SignedOrder) {
    super("signatures_missing");
    this.signed = signed;
  }
}

export class OwnerOrders {
  readonly #deps: OrdersDeps;

  constructor(deps: OrdersDeps) {
    this.#deps = deps;
  }

  /** Throws if a screened address would sign this. Call it outside of transactions. */
  async assertMaySign(
    person: Parameters<Screening["assertMaySign"]>[0],
    kind: OrderKind,
  ): Promise<void> {
    await this.#deps.screening?.assertMaySign(person, kind);
  }

  /** Call it before taking any lock: verifying a contract's signature takes a call to its chain. */
  async verify<K extends OrderKind>(
    owner: OrderOwner,
    kind: K,
    authorization: { order: object; signature: string },
    chainId: number,
  ): Promise<SignedOrder<K>> {
    const signature = authorization.signature.toLowerCase() as Hex;
    await this.assertMaySign({ ...owner, signers: readTeamSignature(signature) }, kind);
    const order = refusingUnknownVersion(() =>
      readOrder(kind, authorization.order as unknown as Orders[K]),
    );
    if (!order) throw notAnOrder("body.authorization.order", "has a field out of range");
    let isUnavailable = false;
    for (const form of FORMS) {
      const digest = orderDigest(kind, order, chainId, form);
      const purpose = purposeOf(kind, order);
      const checked = await this.#deps.checkSignature(owner, { hash: digest, signature, purpose });
      const { verdict, ...rest } = checked;
      if (verdict === "valid") return { kind, chainId, order, form, digest, ...rest };
      isUnavailable ||= verdict === "unavailable";
    }
    if (isUnavailable)
      throw new ApiError("chain_unavailable", {
        detail: "The owner's contract could not be read to check this signature.",
      });
    throw orderNotSigned("The owner did not sign this order.");
  }

  /**
   * Uses up the signed order if it equals what this request would do now; otherwise throws, and the transaction is
   * rolled back.
   */
  async use<K extends OrderKind>(
    tx: Db,
    owner: OrderOwner,
    signed: SignedOrder<K>,
    draft: Draft<K>,
  ): Promise<void> {
    const { order } = signed;
    const nonce = order.nonce as Hex;
    const deadlineSeconds = BigInt(order.deadline);
    const found = await findOrder(tx, nonce);
    if (found?.isUsed === true) throw new ApiError("order_used");
    const nowMs = (await databaseNow(tx)).getTime();
    if (deadlineSeconds * 1000n <= nowMs) throw new ApiError("signature_expired");
    const validSeconds = draft.validSeconds ?? orderSeconds(owner);
    if (deadlineSeconds * 1000n > nowMs + validSeconds * 1000)
      throw notAnOrder(
        "body.authorization.order.deadline",
        `is more than ${spanOf(validSeconds)} away`,
      );
    const wanted = readOrder(draft.kind, draft.build({ nonce, deadlineSeconds }));
    const { kind, chainId } = draft;
    if (wanted === undefined || orderDigest(kind, wanted, chainId, signed.form) !== signed.digest)
      throw new SignatureNeeded(draft, "policy_changed", nonce);
    if (draft.since && Number(deadlineSeconds) - validSeconds < secondOf(draft.since))
      throw new SignatureNeeded(draft, "policy_changed", nonce);
    const members = signed.members === undefined ? undefined : await lockMembers(tx, owner.id);
    if (members !== signed.members) throw new SignatureNeeded(draft, "policy_changed", nonce);
    await assertNotEnded(tx, nonce);
    if (signed.missing) throw new SignaturesMissing(signed);
    await takeQuotaFor(tx, owner, signed);
    await assertCounts(tx, owner, signed);
    const row = {
      nonce,
      kind: draft.kind,
      ownerId: owner.id,
      agentId: draft.agentId,
      version: draft.version,
      chainId: draft.chainId,
      document: order,
      digest: signed.digest,
      deadlineSeconds,
    };
    if (!(await insertUsed(tx, row, signed.signature))) throw new ApiError("order_used");
    await endWaiting(tx, nonce);
  }

  /** Keeps the request of a team until enough members have signed its order. Returns the answer. */
  async wait(owner: OrderOwner, signed: SignedOrder): Promise<ApiError> {
    return this.#deps.prisma.$transaction(async (tx) => {
      // From the member's own quota, so that no member uses up the team's.
      await takeQuotaFor(tx, { id: owner.member?.ownerId ?? owner.id }, signed);
      await assertCounts(tx, owner, signed);
      return keepWaiting(tx, owner, signed);
    });
  }

  /** Runs a change; if it turns out to need the owner's wallet, the response is the order to sign. */
  async requestingSignature<T>(owner: OrderOwner, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof SignaturesMissing) throw await this.wait(owner, error.signed);
      if (!(error instanceof SignatureNeeded)) throw error;
      // A move is signed by both wallets; every other order by the owner alone.
      if (owner.second && error.draft.kind !== "MoveOwner")
        throw new ApiError("second_wallet_only_tightens");
      await this.assertMaySign(owner, error.draft.kind);
      throw await this.#requestSignature(owner, error);
    }
  }

  async #requestSignature(
    owner: OrderOwner,
    { draft, code, outdated }: SignatureNeeded,
  ): Promise<ApiError> {
    const nonce: Hex = `0x${randomBytes(32).toString("hex")}`;
    return this.#deps.prisma.$transaction(async (tx) => {
      const nowSeconds = secondOf(await databaseNow(tx));
      const deadlineSeconds = BigInt(nowSeconds + (draft.validSeconds ?? orderSeconds(owner)));
      if (outdated !== undefined) await endOutdated(tx, owner, outdated);
      const order = draft.build({ nonce, deadlineSeconds });
      const { kind, agentId, chainId, version, wallet } = draft;
      // Checks the quota first, so that no order is signed that would then be refused.
      await takeQuotaFor(tx, owner, { kind, order }, { dryRun: true });
      if (wallet) {
        const digest = orderDigest(kind, order, chainId, REQUESTED_FORM);
        const row = { nonce, kind, agentId, chainId, version, document: order, digest };
        await insertPrepared(tx, { ...row, ownerId: owner.id, deadlineSeconds }, wallet);
      }
      return new ApiError(code, {
        extra: {
          order,
          typedData: typedDataOf(kind, order, chainId, REQUESTED_FORM),
          expiresAt: new Date(Number(deadlineSeconds) * 1000).toISOString(),
        },
      });
    });
  }
}

/** Throws if a passkey signed and counted back. `isAgain`: the same signature may be sent again. */
export async function assertCountsOn(
  tx: Db,
  { id }: Pick<OrderOwner, "id">,
  signed: { digest: Hex; signature: Hex; isAgain?: boolean },
): Promise<void> {
  const { digest: hash, signature, isAgain = false } = signed;
  const by = passkeyThatSigned({ hash, signature });
  if (by && !(await countPasskeyUse(tx, id, by, isAgain)))
    throw orderNotSigned(
      "This passkey's device has counted fewer signatures than before, so a copy of it may exist. Nothing was changed. Sign with another passkey, and remove this one.",
    );
}

/** The same for an order's signature. In a team's, the other members' passkeys were counted when they signed. */
async function assertCounts(
  tx: Db,
  owner: OrderOwner,
  { digest, signature }: { digest: Hex; signature: Hex },
): Promise<void> {
  const { member } = owner;
  if (!member) return assertCountsOn(tx, owner, { digest, signature });
  const own = readTeamSignature(signature)?.find(({ address }) => address === member.address);
  if (own) {
    const signed = { digest, signature: own.signature as Hex, isAgain: true };
    await assertCountsOn(tx, { id: member.ownerId }, signed);
  }
}

/** The estimated size of the order's row, its audit entries with payees' names, and the indexes. */
const ORDER_BYTES = 8192;

async function takeQuotaFor(
  tx: Db,
  owner: Pick<OrderOwner, "id">,
  { kind, order, signature = "" }: { kind: OrderKind; order: object; signature?: string },
  { dryRun } = { dryRun: false },
): Promise<void> {
  // A move to the recovery wallet happens once, and may be an owner's last resort, so it needs no quota.
  if (kind === "MoveOwner") return;
  // The signature is stored in the order's row and in the audit.
  const bytes = ORDER_BYTES + Buffer.byteLength(JSON.stringify(order)) + 2 * signature.length;
  const seconds = await takeQuota(tx, owner.id, { bytes, dryRun });
  if (seconds > 0) throw quotaExceeded(seconds);
}

export const quotaExceeded = (seconds: number): ApiError =>
  new ApiError("rate_limited", {
    detail: `An owner's changes may use ${KEPT_BYTES_PER_DAY / 1024 / 1024} MB a day, and this change exceeds that. Nothing was changed. You can still pause, lower, remove, revoke and withdraw.`,
    extra: { retryAfterSeconds: seconds },
    headers: { "retry-after": String(seconds) },
  });

export const orderNotSigned = (detail: string): ApiError =>
  new ApiError("invalid_signature", {
    detail,
    headers: { "www-authenticate": 'SIWE realm="purser"' },
  });

const notAnOrder = (path: string, message: string): ApiError =>
  new ApiError("validation_failed", {
    detail: `${path} ${message}`,
    extra: { errors: [{ path, message }] },
  });

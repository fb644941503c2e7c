/** An owner's webhooks: create and change them, show and rotate secrets, send tests and resend deliveries. */
import { isKeysUnavailable } from "../../infra/kms.ts";
import { newId } from "../../core/ids.ts";
import { ApiError } from "../../errors.ts";
import { databaseNow, secondsAfter, type Db, type PrismaClient } from "../../infra/db/prisma.ts";
import type { Webhook, WebhookDelivery } from "../../schemas/notifications.ts";
import { noteAudit, type AuditAction } from "../audit/store.ts";
import { kidOfSealed, type SecretBox } from "../custody/secret-box.ts";
import { hintOf, newSecret } from "./message.ts";
import * as store from "./store.ts";
import type { DeliveryRow, WebhookRow } from "./store.ts";

interface WebhooksDeps {
  prisma: PrismaClient;
  secretBox: SecretBox;
  /**
   * Called if a secret cannot be decrypted: it was altered, or its master key is missing. Rotating the secret repairs
   * it.
   */
  trouble(error: unknown, webhookId: string): void;
  /** Throws for URLs that must not be requested. */
  assertAllowed(url: string): URL;
}

export interface Caller {
  ownerId: string;
  /** The address that signed in. */
  actor: string;
  requestId: string;
}

const MAX_WEBHOOKS = 10;
const MAX_URL = 2_000;

export class Webhooks {
  readonly #deps: WebhooksDeps;

  constructor(deps: WebhooksDeps) {
    this.#deps = deps;
  }

  async create(
    caller: Caller,
    wanted: { url: string; types: string[]; description?: string | undefined },
  ): Promise<{ webhook: Webhook; secret: string }> {
    const { ownerId } = caller;
    const id = newId("whk");
    const { url, types, description = "" } = wanted;
    const target = this.#target(url);
    const secret = newSecret();
    const sealed = await this.seal(id, secret);
    return this.#changing(caller, async (tx) => {
      if ((await store.countWebhooks(tx, ownerId)) >= MAX_WEBHOOKS)
        throw new ApiError("webhook_quota_exceeded", {
          detail: `You have ${MAX_WEBHOOKS} webhooks. Delete one you no longer need, then retry.`,
        });
      const webhook = await store.insertWebhook(tx, {
        id,
        ownerId,
        url: target,
        types,
        description,
        secret: sealed,
        secretKid: kidOfSealed(sealed),
        secretHint: hintOf(secret),
      });
      await note(tx, caller, "webhook.created", null, factsOf(webhook));
      return { webhook: viewWebhook(webhook, await databaseNow(tx)), secret };
    });
  }

  async change(
    caller: Caller,
    id: string,
    wanted: store.WebhookChange,
  ): Promise<{ webhook: Webhook }> {
    const change = {
      ...wanted,
      ...(wanted.url === undefined ? {} : { url: this.#target(wanted.url) }),
    };
    return this.#changing(caller, async (tx) => {
      const before = await this.#own(tx, caller, id);
      const after = await store.updateWebhook(tx, before, change);
      await note(tx, caller, "webhook.changed", factsOf(before), factsOf(after));
      return { webhook: viewWebhook(after, await databaseNow(tx)) };
    });
  }

  async remove(caller: Caller, id: string): Promise<void> {
    await this.#changing(caller, async (tx) => {
      const before = await this.#own(tx, caller, id);
      await store.deleteWebhook(tx, id);
      await note(tx, caller, "webhook.deleted", factsOf(before), null);
    });
  }

  /** Both secrets are valid for a while, so that the receiver can switch without losing deliveries. */
  async rotateSecret(
    caller: Caller,
    id: string,
    graceHours: number,
  ): Promise<{ webhook: Webhook; secret: string }> {
    const secret = newSecret();
    const sealed = await this.seal(id, secret);
    return this.#changing(caller, async (tx) => {
      const before = await this.#own(tx, caller, id);
      const now = await databaseNow(tx);
      // Under one master key, so that one column names the key of both.
      const previousSecret = graceHours === 0 ? null : await this.#again(id, before.secret);
      const after = await store.writeSecrets(
        tx,
        id,
        { secret: sealed, previousSecret, kid: kidOfSealed(sealed) },
        {
          secretHint: hintOf(secret),
          previousSecretUntil: previousSecret && secondsAfter(now, graceHours * 3600),
        },
      );
      await note(tx, caller, "webhook.secret_rotated", factsOf(before), {
        ...factsOf(after),
        graceHours,
      });
      return { webhook: viewWebhook(after, now), secret };
    });
  }

  async test(caller: Caller, id: string): Promise<{ delivery: WebhookDelivery }> {
    const { prisma } = this.#deps;
    const webhook = assertActive(await this.#own(prisma, caller, id));
    const delivery = await prisma.$transaction((tx) => store.insertTest(tx, webhook));
    return { delivery: viewDelivery(delivery) };
  }

  async resend(
    caller: Caller,
    id: string,
    deliveryId: string,
  ): Promise<{ delivery: WebhookDelivery }> {
    const { prisma } = this.#deps;
    assertActive(await this.#own(prisma, caller, id));
    const of = { ownerId: caller.ownerId, webhookId: id, id: deliveryId };
    const delivery = await prisma.$transaction((tx) => store.resendDelivery(tx, of));
    if (!delivery)
      throw new ApiError("not_found", { detail: "This webhook has no delivery with this id." });
    return { delivery: viewDelivery(delivery) };
  }

  async list(ownerId: string): Promise<Webhook[]> {
    const { prisma } = this.#deps;
    const now = await databaseNow(prisma);
    const rows = await store.listWebhooks(prisma, ownerId);
    return rows.map((row) => viewWebhook(row, now));
  }

  async assertOwn(ownerId: string, id: string): Promise<void> {
    await this.#own(this.#deps.prisma, { ownerId }, id);
  }

  seal(id: string, secret: string): Promise<Uint8Array> {
    return this.#deps.secretBox.seal(purposeOf(id), Buffer.from(secret));
  }

  async open(id: string, sealed: Uint8Array): Promise<string> {
    return Buffer.from(await this.#deps.secretBox.open(purposeOf(id), sealed)).toString();
  }

  /** Re-encrypts secrets under the active master key in batches; returns how many. */
  async reseal(): Promise<number> {
    const { prisma } = this.#deps;
    const kid = kidOfSealed(await this.seal("", ""));
    return prisma.$transaction(async (tx) => {
      const rows = await store.lockSealedOtherwise(tx, kid);
      let count = 0;
      for (const { id, secret, previousSecret } of rows) {
        const again = await this.#again(id, secret);
        if (again === null) continue;
        const previous = previousSecret && (await this.#again(id, previousSecret));
        const until = previous === null ? { previousSecretUntil: null } : {};
        await store.writeSecrets(tx, id, { secret: again, previousSecret: previous, kid }, until);
        count += 1;
      }
      return count;
    });
  }

  /** Re-encrypted under the active master key; null if it cannot be decrypted. */
  async #again(id: string, sealed: Uint8Array): Promise<Uint8Array | null> {
    try {
      return await this.seal(id, await this.open(id, sealed));
    } catch (error) {
      // Keys that are temporarily unavailable prove nothing about the secret.
      if (isKeysUnavailable(error)) throw error;
      this.#deps.trouble(error, id);
      return null;
    }
  }

  async #own(db: Db, { ownerId }: Pick<Caller, "ownerId">, id: string): Promise<WebhookRow> {
    const found = await store.findWebhook(db, { ownerId, id });
    if (!found) throw new ApiError("not_found", { detail: "You have no webhook with this id." });
    return found;
  }

  #changing<T>({ ownerId }: Caller, work: (tx: Db) => Promise<T>): Promise<T> {
    return this.#deps.prisma.$transaction(async (tx) => {
      await store.lockOwner(tx, ownerId);
      return work(tx);
    });
  }

  #target(text: string): string {
    const { href } = this.#deps.assertAllowed(text);
    if (href.length > MAX_URL)
      throw new ApiError("url_blocked", { detail: `A URL has at most ${MAX_URL} characters.` });
    return href;
  }
}

/** A secret that was encrypted for one webhook cannot be decrypted for another. */
/** The purpose under which the secrets of a webhook are sealed. */
export const purposeOf = (id: string): string => `webhook:${id}`;

function assertActive(webhook: WebhookRow): WebhookRow {
  if (webhook.status !== "active") throw new ApiError("webhook_not_active");
  return webhook;
}

const factsOf = (row: WebhookRow): Record<string, unknown> => ({
  id: row.id,
  url: row.url,
  types: row.types,
  description: row.description,
  status: row.status,
});

const note = (
  tx: Db,
  { ownerId, actor, requestId }: Caller,
  action: AuditAction,
  before: Record<string, unknown> | null,
  after: Record<string, unknown> | null,
): Promise<void> =>
  noteAudit(tx, { ownerId, agentId: null, actor, action, before, after, requestId });

const viewWebhook = (row: WebhookRow, now: Date): Webhook => ({
  id: row.id,
  url: row.url,
  types: row.types,
  description: row.description,
  status: row.status,
  disabledReason: row.disabledReason,
  failingSince: row.failingSince?.toISOString() ?? null,
  createdAt: row.createdAt.toISOString(),
  secretHint: row.secretHint,
  previousSecretUntil:
    row.previousSecretUntil && row.previousSecretUntil > now
      ? row.previousSecretUntil.toISOString()
      : null,
});

export const viewDelivery = (row: DeliveryRow): WebhookDelivery => ({
  id: row.id,
  notificationId: row.notificationId,
  type: row.type,
  status: row.status,
  attempts: row.attempts,
  lastStatus: row.lastStatus,
  lastError: row.lastError,
  nextAttemptAt: ["waiting", "failed"].includes(row.status)
    ? row.nextAttemptAt.toISOString()
    : null,
  deliveredAt: row.deliveredAt?.toISOString() ?? null,
  createdAt: row.createdAt.toISOString(),
});

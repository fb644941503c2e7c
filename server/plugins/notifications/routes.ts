/** Routes of notifications and webhooks, for signed-in owners and merchants. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyRequest } from "fastify";
import { Type } from "typebox";
import { readPage, toPage } from "../../core/paging.ts";
import { IdParams } from "../../schemas/common.ts";
import {
  ChangeWebhookBody,
  DeliveryParams,
  DeliveryQuery,
  NewWebhookBody,
  type Notification,
  NotificationPage,
  NotificationQuery,
  ReadNotificationsBody,
  RotateSecretBody,
  UnreadCount,
  Webhook,
  WebhookDelivery,
  WebhookDeliveryPage,
  WebhookPage,
  WebhookWithSecret,
} from "../../schemas/notifications.ts";
import { Done } from "../../schemas/owners.ts";
import { actorOf } from "../auth/index.ts";
import { acceptEmptyJson } from "../http/index.ts";
import { readTime } from "../payments/history.ts";
import { failingChannels } from "./failing.ts";
import { describe } from "./sentences.ts";
import { countUnread, listDeliveries, listNotifications, markRead } from "./store.ts";
import { viewDelivery, type Caller, type Webhooks } from "./webhooks.ts";

const OneWebhook = Type.Object({ webhook: Webhook });
const OneDelivery = Type.Object({ delivery: WebhookDelivery });

export const callerOf = ({ owner, id }: FastifyRequest): Caller => ({
  ownerId: owner.id,
  actor: actorOf(owner),
  requestId: id,
});

const routes: FastifyPluginAsyncTypebox<{ webhooks: Webhooks }> = async (app, { webhooks }) => {
  acceptEmptyJson(app);
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const tags = ["owners: notifications"];

  app.get(
    "/api/notifications",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listNotifications",
        summary: "The owner's notifications, newest first",
        description:
          "Every event is recorded, whether or not a webhook, an e-mail address or a device is set up. Kept for 30 days.",
        querystring: NotificationQuery,
        response: { 200: NotificationPage },
      },
    },
    async ({ owner, query }) => {
      const page = readPage(query);
      const of = {
        ownerId: owner.id,
        ...(query.type !== undefined && { type: query.type }),
        ...(query.agentId !== undefined && { agentId: query.agentId }),
        ...(query.unread !== undefined && {
          readAt: query.unread === "true" ? null : { not: null },
        }),
      };
      const rows = await listNotifications(app.prisma, of, page);
      const [unread, failing] = await Promise.all([
        countUnread(app.prisma, owner.id),
        failingChannels(app.prisma, owner.id),
      ]);
      return { ...toPage(rows, page.limit, viewNotification), unread, failing };
    },
  );

  app.post(
    "/api/notifications/read",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "readNotifications",
        summary: "Mark notifications as read",
        body: ReadNotificationsBody,
        response: { 200: UnreadCount },
      },
    },
    async ({ owner, body }) => {
      const before = readTime(body.before, "body.before");
      await markRead(app.prisma, { ownerId: owner.id, ids: body.ids, before });
      return { unread: await countUnread(app.prisma, owner.id) };
    },
  );

  app.get(
    "/api/webhooks",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listWebhooks",
        summary: "This owner's webhooks: all of them, at most 10",
        response: { 200: WebhookPage },
      },
    },
    async ({ owner }) => ({ items: await webhooks.list(owner.id), nextCursor: null }),
  );

  app.post(
    "/api/webhooks",
    {
      config: {
        auth: "owner",
        limit: "webhook",
        errors: ["url_blocked", "webhook_quota_exceeded"],
      },
      schema: {
        tags,
        operationId: "createWebhook",
        summary: "Create a webhook: Purser sends events to the URL, signed as Standard Webhooks",
        body: NewWebhookBody,
        response: { 201: WebhookWithSecret },
      },
    },
    async (request, reply) =>
      reply.code(201).send(await webhooks.create(callerOf(request), request.body)),
  );

  app.patch(
    "/api/webhooks/:id",
    {
      config: { auth: "owner", limit: "webhook", errors: ["url_blocked"] },
      schema: {
        tags,
        operationId: "changeWebhook",
        summary: "Change a webhook, pause it, or start it again",
        params: IdParams,
        body: ChangeWebhookBody,
        response: { 200: OneWebhook },
      },
    },
    async (request) => webhooks.change(callerOf(request), request.params.id, request.body),
  );

  app.delete(
    "/api/webhooks/:id",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "deleteWebhook",
        summary: "Delete a webhook and its waiting deliveries",
        params: IdParams,
        response: { 200: Done },
      },
    },
    async (request) => {
      await webhooks.remove(callerOf(request), request.params.id);
      return { success: true as const };
    },
  );

  app.post(
    "/api/webhooks/:id/rotate-secret",
    {
      config: { auth: "owner", limit: "webhook" },
      schema: {
        tags,
        operationId: "rotateWebhookSecret",
        summary: "Replace the secret; deliveries can be signed with both for a while",
        params: IdParams,
        body: RotateSecretBody,
        response: { 200: WebhookWithSecret },
      },
    },
    async (request) =>
      webhooks.rotateSecret(
        callerOf(request),
        request.params.id,
        request.body.graceHours ?? DEFAULT_GRACE_HOURS,
      ),
  );

  app.post(
    "/api/webhooks/:id/test",
    {
      config: { auth: "owner", limit: "webhook", errors: ["webhook_not_active"] },
      schema: {
        tags,
        operationId: "testWebhook",
        summary: "Send a `webhook.test` to this webhook",
        params: IdParams,
        response: { 202: OneDelivery },
      },
    },
    async (request, reply) =>
      reply.code(202).send(await webhooks.test(callerOf(request), request.params.id)),
  );

  app.get(
    "/api/webhooks/:id/deliveries",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listWebhookDeliveries",
        summary: "Deliveries to a webhook, sent and waiting, newest first",
        params: IdParams,
        querystring: DeliveryQuery,
        response: { 200: WebhookDeliveryPage },
      },
    },
    async ({ owner, params, query }) => {
      await webhooks.assertOwn(owner.id, params.id);
      const page = readPage(query);
      const of = {
        ownerId: owner.id,
        webhookId: params.id,
        ...(query.status === undefined ? {} : { status: query.status }),
      };
      return toPage(await listDeliveries(app.prisma, of, page), page.limit, viewDelivery);
    },
  );

  app.post(
    "/api/webhooks/:id/deliveries/:deliveryId/resend",
    {
      config: { auth: "owner", limit: "webhook", errors: ["webhook_not_active"] },
      schema: {
        tags,
        operationId: "resendWebhookDelivery",
        summary: "Send it again, with the same `webhook-id`",
        params: DeliveryParams,
        response: { 202: OneDelivery },
      },
    },
    async (request, reply) => {
      const { id, deliveryId } = request.params;
      return reply.code(202).send(await webhooks.resend(callerOf(request), id, deliveryId));
    },
  );
};

const DEFAULT_GRACE_HOURS = 24;

type Row = Awaited<ReturnType<typeof listNotifications>>[number];

function viewNotification({ id, type, agentId, subjectId, agentName, ...row }: Row): Notification {
  const data = row.data as Record<string, unknown>;
  const createdAt = row.createdAt.toISOString();
  return {
    ...describe({ type, data, agentId, subjectId, agentName }),
    id,
    type,
    agentId,
    subjectId,
    data,
    createdAt,
    at: createdAt,
    readAt: row.readAt?.toISOString() ?? null,
  };
}

export default routes;

/** Routes of an owner's devices: switched on by their browsers, tested and removed. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { plainWords } from "../../core/foreign-text.ts";
import { isPushKey } from "../../core/push-settings.ts";
import { ApiError } from "../../errors.ts";
import type { Db } from "../../infra/db/prisma.ts";
import { OutboundError } from "../../infra/outbound/guard.ts";
import { IdParams } from "../../schemas/common.ts";
import { Done } from "../../schemas/owners.ts";
import {
  NewPushDeviceBody,
  OnePushDevice,
  type PushDevice,
  PushDeviceChanges,
  PushDevicePage,
  PushTest,
} from "../../schemas/push.ts";
import { acceptEmptyJson } from "../http/index.ts";
import type { Outcome } from "./message.ts";
import {
  changeTypes,
  findDevice,
  listDevices,
  putDevice,
  removeDevice,
  settlePush,
  type DeviceRow,
} from "./push-store.ts";
import { testMessage, type PushMessage, type PushTarget } from "./push.ts";
import { callerOf } from "./routes.ts";
import { lockOwner } from "./store.ts";

const MOST_DEVICES = 20;
const UNNAMED = "A device";

export interface PushSender {
  publicKey: string;
  send(target: PushTarget, message: PushMessage): Promise<Outcome>;
}

const pushRoutes: FastifyPluginAsyncTypebox<{ sender: PushSender | undefined }> = async (
  app,
  { sender },
) => {
  acceptEmptyJson(app);
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const tags = ["owners: notifications"];
  const own = async (ownerId: string, id: string, db: Db = app.prisma): Promise<DeviceRow> => {
    const device = await findDevice(db, ownerId, id);
    if (!device) throw new ApiError("not_found", { detail: "You have no device with this id." });
    return device;
  };

  app.get(
    "/api/notifications/push",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listPushDevices",
        summary: "The owner's devices that notifications are pushed to: all of them, at most 20",
        response: { 200: PushDevicePage },
      },
    },
    async ({ owner }) => ({
      items: (await listDevices(app.prisma, owner.id)).map(viewDevice),
      nextCursor: null,
      publicKey: sender?.publicKey ?? null,
    }),
  );

  app.post(
    "/api/notifications/push",
    {
      config: {
        auth: "owner",
        // The device would go on getting notifications when its person has left the team.
        team: false,
        limit: "webhook",
        errors: ["url_blocked", "push_not_available", "push_quota_exceeded"],
      },
      schema: {
        tags,
        operationId: "addPushDevice",
        summary: "Push notifications to a browser, from the subscription that it made",
        description:
          "The same endpoint again is the same device, with the new keys and session. Without `types` it keeps those that it has.",
        body: NewPushDeviceBody,
        response: { 201: OnePushDevice },
      },
    },
    async (request, reply) => {
      if (!sender) throw new ApiError("push_not_available");
      const { endpoint, keys, label, types } = request.body;
      if (!isPushKey(keys.p256dh)) throw badKey();
      const wanted = {
        endpoint: allowed(endpoint),
        ...keys,
        label: plainWords(label, 80) || UNNAMED,
        types,
        sessionId: request.owner.sessionId,
      };
      const caller = callerOf(request);
      const device = await app.prisma.$transaction(async (tx) => {
        await lockOwner(tx, caller.ownerId);
        return putDevice(tx, caller, wanted, MOST_DEVICES);
      });
      if (!device) throw new ApiError("push_quota_exceeded");
      return reply.code(201).send({ device: viewDevice(device) });
    },
  );

  app.patch(
    "/api/notifications/push/:id",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "updatePushDevice",
        summary: "Choose the events that are pushed to this device",
        params: IdParams,
        body: PushDeviceChanges,
        response: { 200: OnePushDevice },
      },
    },
    async (request) => {
      const { types } = request.body;
      const caller = callerOf(request);
      const device = await app.prisma.$transaction(async (tx) => {
        await lockOwner(tx, caller.ownerId);
        return changeTypes(tx, caller, await own(caller.ownerId, request.params.id, tx), types);
      });
      return { device: viewDevice(device) };
    },
  );

  app.delete(
    "/api/notifications/push/:id",
    {
      // The recovery wallet may too: less is sent to a device that may be stolen.
      config: { auth: "owner", second: true },
      schema: {
        tags,
        operationId: "removePushDevice",
        summary: "Push nothing more to this device",
        params: IdParams,
        response: { 200: Done },
      },
    },
    async (request) => {
      const device = await own(request.owner.id, request.params.id);
      await app.prisma.$transaction((tx) => removeDevice(tx, callerOf(request), device));
      return { success: true as const };
    },
  );

  app.post(
    "/api/notifications/push/:id/test",
    {
      config: { auth: "owner", limit: "webhook", errors: ["push_not_available"] },
      schema: {
        tags,
        operationId: "testPushDevice",
        summary: "Push a test message to this device now",
        params: IdParams,
        response: { 200: PushTest },
      },
    },
    async ({ owner, params }) => {
      const device = await own(owner.id, params.id);
      if (!sender) throw new ApiError("push_not_available");
      const outcome = await sender.send(device, testMessage(device.id));
      await app.prisma.$transaction((tx) => settlePush(tx, device, outcome, []));
      return {
        delivered: outcome.kind === "delivered",
        error: outcome.kind === "failed" ? outcome.error : null,
      };
    },
  );

  function allowed(endpoint: string): string {
    try {
      return app.outbound.assertAllowed(endpoint).href;
    } catch (error) {
      if (!(error instanceof OutboundError)) throw error;
      throw new ApiError("url_blocked", { detail: error.message, cause: error });
    }
  }
};

export default pushRoutes;

function badKey(): ApiError {
  const message = "must be a public key of P-256";
  return new ApiError("validation_failed", {
    detail: `body.keys.p256dh ${message}`,
    extra: { errors: [{ path: "body.keys.p256dh", message }] },
  });
}

const viewDevice = (row: DeviceRow): PushDevice => ({
  id: row.id,
  label: row.label,
  service: new URL(row.endpoint).hostname,
  endpointHash: Buffer.from(row.endpointHash).toString("hex"),
  types: row.types,
  deliveredAt: row.deliveredAt?.toISOString() ?? null,
  failingSince: row.failingSince?.toISOString() ?? null,
  lastError: row.lastError,
  createdAt: row.createdAt.toISOString(),
});

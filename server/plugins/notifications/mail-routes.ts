/** Routes of an owner's e-mail: set and confirmed in the app, unsubscribed from any mail program. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyRequest } from "fastify";
import { getAddress } from "viem";
import { parseEmail } from "../../core/mail-settings.ts";
import { ApiError } from "../../errors.ts";
import { Done } from "../../schemas/owners.ts";
import {
  Email,
  EmailBody,
  EmailToken,
  UnsubscribeQuery,
  URGENT_BY_DEFAULT,
} from "../../schemas/email.ts";
import { hashSecret } from "../auth/secrets.ts";
import { actorOf } from "../auth/index.ts";
import { acceptEmptyJson } from "../http/index.ts";
import {
  confirmAddress,
  findEmail,
  nameAddress,
  removeAddress,
  unsubscribe,
  type EmailRow,
  type Owner,
} from "./mail-address-store.ts";

const NOBODYS_LINK =
  "This link has expired, was used, or belongs to a different account. Request a new one.";
const LONGEST_FORM = 4_096;

const routes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const tags = ["owners: notifications"];
  const isAvailable = app.config.mail !== undefined;

  app.get(
    "/api/email",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "getEmail",
        summary: "The owner's e-mail address and settings",
        response: { 200: Email },
      },
    },
    async ({ owner }) => view(await findEmail(app.prisma, owner.id)),
  );

  app.put(
    "/api/email",
    {
      config: { auth: "owner", errors: ["email_not_available", "rate_limited"] },
      schema: {
        tags,
        operationId: "setEmail",
        summary:
          "Set the address, which gets one mail to confirm it, or change which e-mails are sent",
        body: EmailBody,
        response: { 200: Email },
      },
    },
    async (request) => {
      if (!isAvailable) throw new ApiError("email_not_available");
      const { address: text, digest, urgent } = request.body;
      const parsed = parseEmail(text.trim());
      if (!parsed.ok) throw wrongAddress(parsed.reason);
      const wanted = { address: parsed.address, digest, urgent };
      const row = await app.prisma.$transaction((tx) =>
        nameAddress(tx, ownerOf(request), wanted, URGENT_BY_DEFAULT),
      );
      // If this fails, the next minute's run sends it.
      await app.jobs
        .enqueue("send-mails", {}, { jobKey: "send-mails" })
        .catch((error: unknown) => request.log.debug({ err: error }, "the mail waits a minute"));
      return view(row);
    },
  );

  app.post(
    "/api/email/confirm",
    {
      config: { auth: "owner", errors: ["not_found"] },
      schema: {
        tags,
        operationId: "confirmEmail",
        summary: "Confirm the address, with the token of the mail",
        body: EmailToken,
        response: { 200: Email },
      },
    },
    async (request) => {
      const hash = hashOf(request.body.token);
      const row = await app.prisma.$transaction((tx) => confirmAddress(tx, ownerOf(request), hash));
      if (!row) throw new ApiError("not_found", { detail: NOBODYS_LINK });
      return view(row);
    },
  );

  app.delete(
    "/api/email",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "removeEmail",
        summary: "Remove the address; it gets one last mail",
        response: { 200: Done },
      },
    },
    async (request) => {
      await app.prisma.$transaction((tx) => removeAddress(tx, ownerOf(request)));
      return { success: true as const };
    },
  );

  await app.register(unsubscribing);

  function view(row: EmailRow | null): Email {
    return {
      available: isAvailable,
      address: row?.address ?? row?.pendingAddress ?? null,
      confirmedAt: row?.confirmedAt?.toISOString() ?? null,
      pendingAddress: row?.address === null ? null : (row?.pendingAddress ?? null),
      digest: row?.digest ?? "daily",
      urgent: row?.urgent ?? [...URGENT_BY_DEFAULT],
      stopped: row?.stoppedReason ?? null,
      failingSince: row?.failingSince?.toISOString() ?? null,
      lastError: row?.lastError ?? null,
    };
  }
};

/**
 * One-click unsubscribe (RFC 8058). The token identifies the caller: a mail program has no session, and sends a form.
 */
const unsubscribing: FastifyPluginAsyncTypebox = async (app) => {
  const tags = ["owners: notifications"];
  app.addContentTypeParser(
    ["application/x-www-form-urlencoded", "multipart/form-data"],
    { parseAs: "buffer", bodyLimit: LONGEST_FORM },
    // The body is not read: the POST itself is the request.
    (_request, _body, done) => done(null, undefined),
  );

  app.get(
    "/api/email/unsubscribe",
    {
      config: { auth: "public" },
      // For a person's browser: redirects to the app's page with a button, and changes nothing.
      schema: { hide: true, querystring: UnsubscribeQuery },
    },
    async ({ query }, reply) =>
      reply.redirect(`/unsubscribe#token=${encodeURIComponent(query.token)}`, 303),
  );

  app.post(
    "/api/email/unsubscribe",
    {
      config: { auth: "public", errors: ["not_found"] },
      schema: {
        tags,
        operationId: "unsubscribeEmail",
        summary: "Unsubscribe this address (RFC 8058, one click)",
        querystring: UnsubscribeQuery,
        response: { 200: Done },
      },
    },
    async ({ query, id }) => {
      const hash = hashOf(query.token);
      const isKnown = await app.prisma.$transaction((tx) => unsubscribe(tx, hash, id));
      if (!isKnown) throw new ApiError("not_found", { detail: NOBODYS_LINK });
      return { success: true as const };
    },
  );
};

export default routes;

const hashOf = (token: string): Uint8Array<ArrayBuffer> => Uint8Array.from(hashSecret(token));

const ownerOf = ({ owner, id: requestId }: FastifyRequest): Owner => ({
  id: owner.id,
  address: getAddress(owner.address),
  actor: actorOf(owner),
  requestId,
});

function wrongAddress(reason: string): ApiError {
  const errors = [{ path: "body.address", message: reason }];
  return new ApiError("validation_failed", {
    detail: `body.address ${reason}`,
    extra: { errors },
  });
}

/** Streams the events of an owner's agents (server-sent events), until the session or the service ends. */
import fp from "fastify-plugin";
import {
  changedSince,
  currentPlace,
  ownersWithNews,
  readEvents,
  eventStream,
  Wakeups,
} from "./events.ts";
import { Readable } from "node:stream";
import { Type } from "typebox";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { OpenWaits } from "../../core/open-waits.ts";
import { Listener } from "../../infra/db/listener.ts";
import { isSessionLive } from "../auth/sessions.ts";
import { findPayments } from "../payments/store.ts";
import { ApiError } from "../../errors.ts";
import type { RequestOwner } from "../auth/index.ts";

export default fp(
  async (app) => {
    await app.register(routes);
  },
  { name: "activity" },
);

const HEARTBEAT_MS = 10_000;
/** Payments do not NOTIFY (see the migration): one small query per process, while streams are open. */
const LOOK_MS = 250;
/** A caller is a session. */
const MOST_STREAMS = { perCaller: 12, perOwner: 50, perProcess: 1_000 };

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const wakeups = new Wakeups();
  const streams = new OpenWaits(MOST_STREAMS);
  const listener = new Listener({
    connectionString: app.config.databaseUrl ?? "",
    silence: app.silence,
    onConnected: () => wakeups.wakeAll(),
    onTrouble: (error) => app.log.warn({ err: error }, "event listener lost; reconnecting"),
  });
  listener.on("purser_events", (ownerId) => wakeups.wake(ownerId));
  let nextTx = 0n;
  let isLooking = false;
  const look = async (): Promise<void> => {
    const ownerIds = wakeups.owners();
    if (isLooking || ownerIds.length === 0) return;
    isLooking = true;
    try {
      const found = await ownersWithNews(app.pool, ownerIds, nextTx);
      nextTx = found.nextTx;
      for (const ownerId of found.owners) wakeups.wake(ownerId);
    } catch (error) {
      // The heartbeat reads too, and reports to the client if it cannot.
      app.log.debug({ err: error }, "could not read new events");
    } finally {
      isLooking = false;
    }
  };
  const timer = setInterval(() => void look(), LOOK_MS).unref();
  app.addHook("onReady", async () => listener.connect());
  // Streams never end by themselves: without this, closing would wait for them.
  app.addHook("preClose", async () => {
    clearInterval(timer);
    wakeups.close();
  });
  app.addHook("onClose", async () => listener.close());

  const eventsOf = (
    owner: RequestOwner,
    lastEventId: string | undefined,
    gone: AbortSignal,
  ): AsyncGenerator<string> =>
    eventStream(
      {
        wakeups,
        heartbeatMs: HEARTBEAT_MS,
        read: (query) => readEvents(app.pool, query),
        changedSince: (query) => changedSince(app.pool, query),
        current: () => currentPlace(app.pool),
        isSessionLive: (sessionId) => isSessionLive(app.prisma, sessionId),
        payments: async (keys) => {
          const rows = keys.length === 0 ? [] : await findPayments(app.prisma, keys);
          return new Map(rows.map((row) => [row.id, app.paymentHistory.present(row)]));
        },
      },
      { ownerId: owner.id, sessionId: owner.sessionId, lastEventId, gone },
    );

  app.get(
    "/api/events",
    {
      config: { auth: "owner" },
      schema: {
        tags: ["owners: payments"],
        operationId: "streamEvents",
        summary:
          "Server-sent events `payment`, `agent`, `approval.*`, `owner` (everything was stopped or resumed, or the denied payees changed), `session`; resumes with Last-Event-ID",
        headers: Type.Object({
          "last-event-id": Type.Optional(
            Type.String({ description: "The `id` of the last event you have" }),
          ),
        }),
        produces: ["text/event-stream"],
      },
    },
    async (request, reply) => {
      const { owner, headers } = request;
      const lastEventId = [headers["last-event-id"]].flat()[0];
      const close = streams.open({ callerId: owner.sessionId, ownerId: owner.id });
      if (!close)
        throw new ApiError("rate_limited", {
          detail: "Too many event streams are open. Close one first.",
          extra: { retryAfterSeconds: 10 },
          headers: { "retry-after": "10" },
        });
      const gone = new AbortController();
      reply.raw.once("close", () => {
        close();
        gone.abort();
      });
      return reply
        .headers({
          "content-type": "text/event-stream; charset=utf-8",
          "cache-control": "no-store, no-transform",
          // Buffering proxies would hold events back.
          "x-accel-buffering": "no",
          // A kept-alive connection would delay a shutdown.
          connection: "close",
        })
        .send(Readable.from(eventsOf(owner, lastEventId, gone.signal)));
    },
  );
};

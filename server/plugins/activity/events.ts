import fp from "fastify-plugin";
import { Listener } from "../../infra/db/listener.ts";
import { currentPlace, ownersWithNews, readEvents } from "./event-store.ts";
import { isSessionLive } from "../auth/sessions.ts";
import { findPayments } from "../payments/store.ts";
import { eventStream } from "./event-stream.ts";
import { Wakeups } from "./event-stream.ts";
import { ApiError } from "../../errors.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** An owner's events as text/event-stream, until the session or the service ends. */
    ownerEvents(args: {
      ownerId: string;
      sessionId: string;
      lastEventId: string | undefined;
    }): AsyncGenerator<string>;
  }
}

const HEARTBEAT_MS = 10_000;
/** Payments do not NOTIFY (see the migration): one small query per process, while streams are open. */
const LOOK_MS = 250;
const MAX_STREAMS_PER_OWNER = 50;

export default fp(
  async (app) => {
    const wakeups = new Wakeups();
    const listener = new Listener({
      connectionString: app.config.databaseUrl ?? "",
      onConnected: () => wakeups.wakeAll(),
      onTrouble: (error) => app.log.warn({ err: error }, "event listener lost; reconnecting"),
    });
    listener.on("purser_events", (ownerId) => wakeups.wake(ownerId));
    app.decorate("ownerEvents", (args) => {
      if (wakeups.count(args.ownerId) >= MAX_STREAMS_PER_OWNER)
        throw new ApiError("rate_limited", { detail: "Too many event streams are open." });
      return eventStream(
        {
          wakeups,
          heartbeatMs: HEARTBEAT_MS,
          read: (query) => readEvents(app.pool, query),
          current: () => currentPlace(app.pool),
          isSessionLive: (sessionId) => isSessionLive(app.prisma, sessionId),
          payments: async (keys) => {
            const rows = keys.length === 0 ? [] : await findPayments(app.prisma, keys);
            return new Map(rows.map((row) => [row.id, app.paymentHistory.present(row)]));
          },
        },
        args,
      );
    });
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
        // The heartbeat reads as well, and says so to the client when it cannot.
        app.log.debug({ err: error }, "could not look for new events");
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
  },
  { name: "events" },
);

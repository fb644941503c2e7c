/** Notifications: the app's list, webhooks (docs/how-to/receive-webhooks.md), e-mail, web push, and the jobs that deliver them. */
import type { FastifyInstance } from "fastify";
import fp from "fastify-plugin";
import { Counter } from "prom-client";
import { ApiError } from "../../errors.ts";
import { afterStartup } from "../../infra/after-startup.ts";
import { OutboundError } from "../../infra/outbound/guard.ts";
import { registerGauges } from "../../infra/telemetry.ts";
import { Deliveries } from "./deliveries.ts";
import {
  claimDue,
  finishAttempt,
  isAnyDue,
  readBacklog,
  sweep,
  sweepDeleted,
} from "./deliveries-store.ts";
import { mail } from "./mail-plugin.ts";
import { push, type Lookout } from "./push-plugin.ts";
import routes from "./routes.ts";
import { Webhooks } from "./webhooks.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Sends all due deliveries. The job queue calls it. */
    deliverWebhooks(): Promise<void>;
  }
}

const TASK = "deliver-webhooks";

export default fp(
  async (app) => {
    const webhooks = new Webhooks({
      prisma: app.prisma,
      secretBox: app.secretBox,
      trouble: (error, webhookId) =>
        app.log.error({ err: error, webhookId }, "a webhook's secret cannot be decrypted"),
      assertAllowed: (url) => {
        try {
          return app.outbound.assertAllowed(url);
        } catch (error) {
          if (!(error instanceof OutboundError)) throw error;
          throw new ApiError("url_blocked", { detail: error.message, cause: error });
        }
      },
    });
    const outcomes = new Counter({
      name: "purser_notifications_deliveries_total",
      help: "Webhook delivery attempts, by outcome",
      labelNames: ["outcome"],
      registers: [app.metrics],
    });
    for (const outcome of ["delivered", "failed", "given_up"]) outcomes.inc({ outcome }, 0);
    const deliveries = new Deliveries({
      timings: app.config.timings,
      claim: (request) => claimDue(app.pool, request),
      finish: (claimed, outcome) => finishAttempt(app.pool, claimed, outcome),
      send: (request) => app.outbound.request(request),
      openSecret: (id, sealed) => webhooks.open(id, sealed),
      now: () => new Date(),
      trouble: (error, claimed) =>
        app.log.error(
          { err: error, webhookId: claimed?.webhookId, deliveryId: claimed?.deliveryId },
          "a webhook delivery failed and is retried",
        ),
      counted: (outcome) => outcomes.inc({ outcome }),
    });
    app.decorate("deliverWebhooks", () => deliveries.drain());
    app.addHook("preClose", () => deliveries.stop());
    // One worker is enough: a second one that waits for the same run would be missing for the queue's other tasks.
    app.jobs.addTask(TASK, async () => void (deliveries.isDraining || (await deliveries.drain())), {
      cron: "* * * * *",
      atStart: true,
      queue: "thirdParties",
    });
    app.jobs.addTask(
      "sweep-webhooks",
      async () => {
        await sweep(app.pool);
        await sweepDeleted(app.pool);
        // If the active master key has changed.
        while ((await webhooks.reseal()) > 0);
      },
      { cron: "* * * * *", atStart: true },
    );
    registerGauges(app.metrics, {
      labelNames: [],
      rows: async () => [{ labels: {}, ...(await readBacklog(app.pool)) }],
      gauges: {
        purser_notifications_waiting: [
          "Waiting deliveries to active webhooks",
          ({ waiting }) => waiting,
        ],
        purser_notifications_oldest_seconds: [
          "Age of the oldest waiting delivery",
          ({ oldestSeconds }) => oldestSeconds,
        ],
      },
    });
    await app.register(routes, { webhooks });
    await mail(app);
    const pushes = await push(app);
    lookForNews(app, [
      // A delivery that is due and not claimed means that no process delivers, or that it is busy.
      { task: TASK, isDue: async () => !deliveries.isDraining && (await isAnyDue(app.pool)) },
      ...(pushes ? [pushes] : []),
    ]);
  },
  { name: "notifications" },
);

/** Messages that are due and that nobody sends: then this replica helps. */
function lookForNews(app: FastifyInstance, lookouts: readonly Lookout[]): void {
  let isLooking = false;
  const look = async (): Promise<void> => {
    if (isLooking) return;
    isLooking = true;
    try {
      for (const lookout of lookouts)
        if (await lookout.isDue())
          await app.jobs.enqueue(lookout.task, {}, { jobKey: lookout.task });
    } catch (error) {
      // The job retries every minute.
      app.log.debug({ err: error }, "could not read due notifications");
    } finally {
      isLooking = false;
    }
  };
  let timer: NodeJS.Timeout | undefined;
  afterStartup(app, () => {
    timer = setInterval(() => void look(), app.config.timings.webhookLookMs);
  });
  app.addHook("preClose", async () => clearInterval(timer));
}

/** Web push: due notifications are sent to the owners' devices by the job queue for external hosts. */
import type { FastifyInstance } from "fastify";
import { Counter } from "prom-client";
import { OutboundError } from "../../infra/outbound/guard.ts";
import type { Outcome } from "./message.ts";
import pushRoutes, { type PushSender } from "./push-routes.ts";
import {
  claimDevices,
  isPushDue,
  readWaiting,
  releaseDevice,
  settlePush,
  waitForMinute,
  type ClaimedDevice,
} from "./push-store.ts";
import {
  messageOf,
  planPush,
  readPushAnswer,
  requestOf,
  subjectOf,
  summaryOf,
  type PushMessage,
} from "./push.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Sends all due push messages. The job queue calls it; undefined without VAPID_KEYS. */
    sendPushes?: () => Promise<void>;
  }
}

const TASK = "send-pushes";
const TOGETHER = 8;
/** The time limit of a run, which leaves time for the queue's other work. */
const RUN_MS = 60_000;

export interface Lookout {
  task: string;
  isDue(): Promise<boolean>;
}

/** Returns how to look for due messages; undefined without keys. */
export async function push(app: FastifyInstance): Promise<Lookout | undefined> {
  const sender = senderOf(app);
  await app.register(pushRoutes, { sender });
  if (!sender) return undefined;
  const outcomes = new Counter({
    name: "purser_pushes_total",
    help: "Push messages to owners' devices, by outcome: delivered, failed, or gone (the browser ended it)",
    labelNames: ["outcome"],
    registers: [app.metrics],
  });
  for (const outcome of ["delivered", "failed", "gone"]) outcomes.inc({ outcome }, 0);
  const send = async (
    device: ClaimedDevice,
    message: PushMessage,
    ids: readonly string[],
  ): Promise<boolean> => {
    const outcome = await sender.send(device, message);
    await app.prisma.$transaction((tx) => settlePush(tx, device, outcome, ids));
    outcomes.inc({ outcome: outcome.kind === "failed" && outcome.isGone ? "gone" : outcome.kind });
    return outcome.kind === "delivered";
  };
  const serve = async (device: ClaimedDevice): Promise<void> => {
    const events = await readWaiting(app.pool, device.id);
    const plan = planPush({ waiting: events.length, sent: device.sent });
    if (plan === "wait") await waitForMinute(app.pool, device.id);
    else if (plan === "summary")
      await send(
        device,
        summaryOf(events),
        events.map(({ id }) => id),
      );
    else for (const event of events) if (!(await send(device, messageOf(event), [event.id]))) break;
    await releaseDevice(app.pool, device.id);
  };
  const stopping = new AbortController();
  const drain = async (): Promise<void> => {
    const endsAtMs = performance.now() + RUN_MS;
    while (!stopping.signal.aborted && performance.now() < endsAtMs) {
      const devices = await claimDevices(app.pool, TOGETHER);
      if (devices.length === 0) return;
      await Promise.all(
        devices.map((device) =>
          serve(device).catch((error: unknown) =>
            // Its lease ends, and then it is tried again.
            app.log.error({ err: error, deviceId: device.id }, "a push message was not sent"),
          ),
        ),
      );
    }
  };
  let running: Promise<void> | undefined;
  const run = (): Promise<void> => (running ??= drain().finally(() => (running = undefined)));
  app.decorate("sendPushes", run);
  app.addHook("preClose", async () => {
    stopping.abort();
    await running?.catch(() => undefined);
  });
  app.jobs.addTask(TASK, run, { queue: "thirdParties", cron: "* * * * *", atStart: true });
  return {
    task: TASK,
    isDue: async () => running === undefined && (await isPushDue(app.pool)),
  };
}

function senderOf({ config, outbound }: FastifyInstance): PushSender | undefined {
  const { vapidKeys: keys, publicUrl, mail, timings } = config;
  if (!keys) return undefined;
  const subject = subjectOf(publicUrl, mail?.from.address);
  return {
    publicKey: keys.publicKey,
    async send(target, message): Promise<Outcome> {
      try {
        const request = requestOf(target, message, { keys, subject });
        const { status } = await outbound.request({
          ...request,
          timeoutMs: timings.webhookTimeoutMs,
        });
        return readPushAnswer(status);
      } catch (error) {
        if (!(error instanceof OutboundError)) throw error;
        return { kind: "failed", status: null, error: error.message, isGone: false };
      }
    },
  };
}

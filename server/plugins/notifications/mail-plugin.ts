/** E-mail: due mails are composed every minute, and sent by the job queue for external hosts. */
import { setTimeout as delay } from "node:timers/promises";
import { Counter } from "prom-client";
import type { FastifyInstance } from "fastify";
import { createSecret, hashSecret } from "../auth/secrets.ts";
import { asHtml, asText } from "./mail-layout.ts";
import routes from "./mail-routes.ts";
import { mailServer, type MailServer } from "./mail-server.ts";
import {
  claimMails,
  dropAll,
  dropMail,
  isWanted,
  keepToken,
  makeMails,
  ownersDue,
  settleMail,
  type ClaimedMail,
} from "./mail-store.ts";
import { letterOf } from "./mail-texts.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Composes and sends all due mails. The job queue calls it; undefined without SMTP_URL. */
    sendMails?: () => Promise<void>;
  }
}

const CONFIRM_PREFIX = "purser_ec_";
const UNSUBSCRIBE_PREFIX = "purser_eu_";
/**
 * How many mails are composed and sent concurrently, and the time limit of a run, which leaves time for the queue's
 * other work.
 */
const TOGETHER = 4;
const RUN_MS = 60_000;
const LOOK_MS = 200;

export async function mail(app: FastifyInstance): Promise<void> {
  await app.register(routes);
  const { mail: settings } = app.config;
  app.jobs.addTask(
    "forget-mails",
    async () => {
      if (!settings) await dropAll(app.prisma);
    },
    { cron: "41 * * * *", atStart: true },
  );
  if (!settings) return;
  const server = mailServer(settings);
  const mails = new Counter({
    name: "purser_mails_total",
    help: "Mails passed to the SMTP server, by kind and outcome: sent, refused, given_up, or waiting for a retry",
    labelNames: ["kind", "outcome"],
    registers: [app.metrics],
  });
  const failing: Failing = new Set();
  const send = (): Promise<void> => sendMails(app, { server, mails, failing });
  app.decorate("sendMails", send);
  app.jobs.addTask("send-mails", send, {
    queue: "thirdParties",
    cron: "* * * * *",
    atStart: true,
  });
}

interface Sending {
  server: MailServer;
  failing: Failing;
  mails: Counter<"kind" | "outcome">;
}

/** Owners whose mails could not be composed the last time. */
type Failing = Set<string>;

/** Mails that failed before come last, because a slow failure must not delay the others. */
async function makeDueMails({ prisma, log }: FastifyInstance, failing: Failing): Promise<void> {
  const due = await ownersDue(prisma);
  const ordered = [
    ...due.filter((ownerId) => !failing.has(ownerId)),
    ...due.filter((ownerId) => failing.has(ownerId)),
  ].values();
  const make = async (): Promise<void> => {
    for (const ownerId of ordered)
      try {
        await prisma.$transaction((tx) => makeMails(tx, ownerId));
        failing.delete(ownerId);
      } catch (error) {
        failing.add(ownerId);
        log.error({ err: error, ownerId }, "the owner's mail could not be written");
      }
  };
  await Promise.all(Array.from({ length: TOGETHER }, make));
}

/** Sends mails while others are still being composed. */
async function sendMails(app: FastifyInstance, sending: Sending): Promise<void> {
  let isMaking = true;
  const making = makeDueMails(app, sending.failing).finally(() => (isMaking = false));
  // A failure is handled by the await below.
  making.catch(() => undefined);
  const endsAtMs = performance.now() + RUN_MS;
  while (performance.now() < endsAtMs) {
    const mayCome = isMaking;
    const claimed = await claimMails(app.prisma, TOGETHER);
    const outcomes = await Promise.all(claimed.map((one) => sendMail(app, sending, one)));
    // If the server has a problem, it is not used again before the next run.
    if (outcomes.includes("trouble")) break;
    if (claimed.length === TOGETHER) continue;
    if (!mayCome) break;
    await Promise.race([making, delay(LOOK_MS)]);
  }
  await making;
}

async function sendMail(
  { prisma, config, log }: FastifyInstance,
  { server, mails }: Sending,
  mail: ClaimedMail,
): Promise<string> {
  if (!(await isWanted(prisma, mail))) {
    await dropMail(prisma, mail.id, "The address was changed or stopped in the meantime.");
    return "dropped";
  }
  const { publicUrl } = config;
  const { kind } = mail.content;
  const isConfirmation = kind === "confirmation";
  const token = createSecret(isConfirmation ? CONFIRM_PREFIX : UNSUBSCRIBE_PREFIX);
  await keepToken(prisma, mail, {
    hash: Uint8Array.from(hashSecret(token)),
    purpose: isConfirmation ? "confirm" : "unsubscribe",
  });
  // The token is in the URL's fragment, which no server sees; the app posts it when its button is pressed.
  const letter = letterOf(mail.content, {
    publicUrl,
    confirmUrl: `${publicUrl}/notifications/email#confirm=${token}`,
  });
  const outcome = await server.send({
    id: mail.id,
    to: mail.address,
    subject: letter.subject,
    text: asText(letter),
    html: asHtml(letter),
    date: mail.createdAt,
    ...(isConfirmation
      ? {}
      : { unsubscribeUrl: `${publicUrl}/api/email/unsubscribe?token=${token}` }),
  });
  const status = await prisma.$transaction((tx) => settleMail(tx, mail, outcome));
  mails.inc({ kind, outcome: status });
  if (outcome.kind !== "sent")
    log.warn({ mailId: mail.id, outcome: outcome.kind, reason: outcome.reason }, "mail not sent");
  return outcome.kind;
}

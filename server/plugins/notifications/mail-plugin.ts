/** E-mail: the mails that are due are made every minute, and sent by the queue for strangers. */
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
  forgetMails,
  isWanted,
  keepToken,
  makeMails,
  ownersDue,
  settleMail,
  type ClaimedMail,
} from "./mail-store.ts";
import { letterOf } from "./mail-words.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Makes and sends all mails that are due, now. The job queue calls it; without SMTP_URL there is nothing to call. */
    sendMails?: () => Promise<void>;
  }
}

const CONFIRM_PREFIX = "purser_ec_";
const UNSUBSCRIBE_PREFIX = "purser_eu_";
/** At once; and a run ends in time for the queue's other work. */
const TOGETHER = 4;
const RUN_MS = 60_000;

export async function mail(app: FastifyInstance): Promise<void> {
  await app.register(routes);
  const { mail: settings } = app.config;
  app.jobs.addTask(
    "forget-mails",
    async () => {
      if (!settings) await dropAll(app.prisma);
      app.log.info({ mails: await forgetMails(app.prisma) }, "old rows deleted");
    },
    { cron: "41 * * * *", atStart: true },
  );
  if (!settings) return;
  const server = mailServer(settings);
  const mails = new Counter({
    name: "purser_mails_total",
    help: "Mails handed to the SMTP server, by kind and what it said: sent, refused, given_up, or waiting for another try",
    labelNames: ["kind", "outcome"],
    registers: [app.metrics],
  });
  const send = (): Promise<void> => sendMails(app, { server, mails });
  app.decorate("sendMails", send);
  app.jobs.addTask("send-mails", send, {
    queue: "strangers",
    cron: "* * * * *",
    atStart: true,
  });
}

interface Sending {
  server: MailServer;
  mails: Counter<"kind" | "outcome">;
}

/** A mail that cannot be made must not keep the others from being sent. */
async function makeDueMails({ prisma, log }: FastifyInstance): Promise<void> {
  for (const ownerId of await ownersDue(prisma))
    try {
      await prisma.$transaction((tx) => makeMails(tx, ownerId));
    } catch (error) {
      log.error({ err: error, ownerId }, "the owner's mail could not be made");
    }
}

async function sendMails(app: FastifyInstance, sending: Sending): Promise<void> {
  await makeDueMails(app);
  const endsAtMs = performance.now() + RUN_MS;
  while (performance.now() < endsAtMs) {
    const claimed = await claimMails(app.prisma, TOGETHER);
    const outcomes = await Promise.all(claimed.map((one) => sendMail(app, sending, one)));
    // A server in trouble is left alone until the next run; so is one with nothing more to take.
    if (claimed.length < TOGETHER || outcomes.includes("trouble")) return;
  }
}

async function sendMail(
  { prisma, config, log }: FastifyInstance,
  { server, mails }: Sending,
  mail: ClaimedMail,
): Promise<string> {
  if (!(await isWanted(prisma, mail))) {
    await dropMail(prisma, mail.id, "The address was changed or stopped meanwhile.");
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
  // Behind a #, so that no server on the way sees it; the app posts it when its button is pressed.
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

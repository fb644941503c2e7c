/** Hands one mail to the SMTP server, and decides whose fault a failure is. */
import { createTransport, type Transporter } from "nodemailer";
import type { MailSettings } from "../../core/mail-settings.ts";
import { plainWords } from "../../core/foreign-text.ts";
import { hideSecrets, type Hide } from "../../core/secret-text.ts";

export interface OutgoingMail {
  /** Of our own making: `<id@domain>` is the Message-ID, the same whenever this mail is sent again. */
  id: string;
  to: string;
  subject: string;
  text: string;
  html: string;
  date: Date;
  /** For List-Unsubscribe (RFC 2369 and 8058); a confirmation has none, since nothing is subscribed. */
  unsubscribeUrl?: string;
}

/**
 * `refused`: the server will never take this mail for this address (5xx). `later`: it may take it another time (4xx).
 * `trouble`: the server itself cannot be used now, which proves nothing about the address. In the last two the mail may have
 * been taken all the same: what is sent again carries the same Message-ID.
 */
export type MailOutcome =
  | { kind: "sent" }
  | { kind: "refused" | "later" | "trouble"; reason: string };

export interface MailServer {
  send(mail: OutgoingMail): Promise<MailOutcome>;
}

/** For each step, and for all: a server that dribbles is as good as one that is silent. */
const PATIENCE = { stepMs: 10_000, wholeMs: 30_000 };
const MAX_REASON = 200;

/** The connection to the server; the doctor uses it too. */
export function transportOf(settings: MailSettings, patience = PATIENCE): Transporter {
  const { host, port, user, password } = settings;
  return createTransport({
    host,
    port,
    secure: settings.isSecure,
    requireTLS: settings.needsTls,
    // On this machine there is nobody in between, and its certificate names nobody.
    ignoreTLS: settings.isLoopback,
    tls: { minVersion: "TLSv1.2", rejectUnauthorized: !settings.isLoopback },
    ...(user === undefined || password === undefined ? {} : { auth: { user, pass: password } }),
    connectionTimeout: patience.stepMs,
    greetingTimeout: patience.stepMs,
    dnsTimeout: patience.stepMs,
    socketTimeout: patience.stepMs,
    maxResponseSize: 16 * 1024,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
}

export function mailServer(
  settings: MailSettings,
  patience: { stepMs: number; wholeMs: number } = PATIENCE,
): MailServer {
  const { from } = settings;
  const transport = transportOf(settings, patience);
  const hide = hideSecrets(settings.secrets);
  const domain = from.address.slice(from.address.lastIndexOf("@") + 1);
  return {
    async send({ id, to, subject, text, html, date, unsubscribeUrl }) {
      try {
        await transport.sendMail({
          signal: AbortSignal.timeout(patience.wholeMs),
          from,
          to: { name: "", address: to },
          subject: plainWords(subject, 150),
          text,
          html,
          date,
          messageId: `<${id}@${domain}>`,
          headers: {
            "Auto-Submitted": "auto-generated",
            ...(unsubscribeUrl !== undefined && {
              "List-Unsubscribe": { prepared: true, value: `<${unsubscribeUrl}>` },
              "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
            }),
          },
        });
        return { kind: "sent" };
      } catch (error) {
        return outcomeOf(error, hide);
      }
    },
  };
}

interface SmtpError {
  code?: string;
  command?: string;
  responseCode?: number;
  message?: string;
}

/** Only answers about the recipient or the message are about them; the rest is between the server and us. */
function outcomeOf(error: unknown, hide: Hide): MailOutcome {
  const { code, command, responseCode = 0, message } = (error ?? {}) as SmtpError;
  const reason = plainWords(hide(message ?? "no reason given"), MAX_REASON);
  const isAboutMail = command === "RCPT TO" || command === "DATA";
  // A connection that broke while the message went over has no code of the server's for it.
  if (!isAboutMail || !/^(EENVELOPE|EMESSAGE)$/.test(code ?? ""))
    return { kind: "trouble", reason };
  if (responseCode >= 500) return { kind: "refused", reason };
  return { kind: responseCode >= 400 ? "later" : "trouble", reason };
}

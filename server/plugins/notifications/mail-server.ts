/** Sends one mail to the SMTP server, and classifies failures. */
import { createTransport, type Transporter } from "nodemailer";
import type { MailSettings } from "../../core/mail-settings.ts";
import { plainWords } from "../../core/foreign-text.ts";
import { hideSecrets, type Hide } from "../../core/secret-text.ts";

export interface OutgoingMail {
  /** Generated: `<id@domain>` is the Message-ID, the same whenever this mail is sent again. */
  id: string;
  to: string;
  subject: string;
  text: string;
  html: string;
  date: Date;
  /** For List-Unsubscribe (RFC 2369 and 8058); a confirmation has none, because nothing is subscribed yet. */
  unsubscribeUrl?: string;
}

/**
 * `refused`: the server will never accept this mail for this address (5xx). `later`: it may accept it another time
 * (4xx). `trouble`: the server itself cannot be used now, which proves nothing about the address. In the last two cases
 * the mail may have been accepted nevertheless; a repeat has the same Message-ID.
 */
export type MailOutcome =
  | { kind: "sent" }
  | { kind: "refused" | "later" | "trouble"; reason: string };

export interface MailServer {
  send(mail: OutgoingMail): Promise<MailOutcome>;
}

/** Timeouts for each step, and for the whole: a server that sends single bytes is as bad as a silent one. */
const SMTP_TIMEOUTS = { stepMs: 10_000, wholeMs: 30_000 };
const MAX_REASON = 200;

/** The connection to the server; the doctor uses it too. */
export function transportOf(settings: MailSettings, timeouts = SMTP_TIMEOUTS): Transporter {
  const { host, port, user, password } = settings;
  return createTransport({
    host,
    port,
    secure: settings.isSecure,
    requireTLS: settings.needsTls,
    // On this machine the connection needs no TLS, and the certificate names no host.
    ignoreTLS: settings.isLoopback,
    tls: { minVersion: "TLSv1.2", rejectUnauthorized: !settings.isLoopback },
    ...(user === undefined || password === undefined ? {} : { auth: { user, pass: password } }),
    connectionTimeout: timeouts.stepMs,
    greetingTimeout: timeouts.stepMs,
    dnsTimeout: timeouts.stepMs,
    socketTimeout: timeouts.stepMs,
    maxResponseSize: 16 * 1024,
    disableFileAccess: true,
    disableUrlAccess: true,
  });
}

export function mailServer(
  settings: MailSettings,
  timeouts: { stepMs: number; wholeMs: number } = SMTP_TIMEOUTS,
): MailServer {
  const { from } = settings;
  const transport = transportOf(settings, timeouts);
  const hide = hideSecrets(settings.secrets);
  const domain = from.address.slice(from.address.lastIndexOf("@") + 1);
  return {
    async send({ id, to, subject, text, html, date, unsubscribeUrl }) {
      try {
        await transport.sendMail({
          signal: AbortSignal.timeout(timeouts.wholeMs),
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

/** Only responses to the recipient or the message are about the mail; all others are about the server. */
function outcomeOf(error: unknown, hide: Hide): MailOutcome {
  const { code, command, responseCode = 0, message } = (error ?? {}) as SmtpError;
  const reason = plainWords(hide(message ?? "no reason given"), MAX_REASON);
  const isAboutMail = command === "RCPT TO" || command === "DATA";
  // If the connection breaks during the message, the error has no response code from the server.
  if (!isAboutMail || !/^(EENVELOPE|EMESSAGE)$/.test(code ?? ""))
    return { kind: "trouble", reason };
  if (responseCode >= 500) return { kind: "refused", reason };
  return { kind: responseCode >= 400 ? "later" : "trouble", reason };
}

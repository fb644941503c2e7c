/** The Standard Webhooks format of a delivery, the meaning of a response, and the retry schedule. */
import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";

export interface WebhookEvent {
  /** `ntf_...`: the webhook-id. */
  id: string;
  type: string;
  data: unknown;
  createdAt: Date;
}

const SECRET_BYTES = 32;

export const newSecret = (): string => `whsec_${randomBytes(SECRET_BYTES).toString("base64")}`;
export const hintOf = (secret: string): string => `…${secret.replace(/=+$/, "").slice(-4)}`;

/** The same bytes in each attempt. */
export const bodyOf = ({ type, createdAt, data }: WebhookEvent): string =>
  JSON.stringify({ type, timestamp: createdAt.toISOString(), data });

/** Signed with every secret that is currently valid, the newest first. */
export function headersOf(
  id: string,
  body: string,
  { secrets, at }: { secrets: readonly string[]; at: Date },
): Record<string, string> {
  const signatures = secrets.map((secret) => new Webhook(secret).sign(id, at, body));
  return {
    "content-type": "application/json",
    "webhook-id": id,
    "webhook-timestamp": String(Math.floor(at.getTime() / 1000)),
    "webhook-signature": signatures.join(" "),
  };
}

export type Outcome =
  | { kind: "delivered"; status: number }
  /** `isGone`: the target wants no more deliveries. */
  | { kind: "failed"; status: number | null; error: string; isGone: boolean };

/** Only a success status counts, whatever the body is. */
export function readAnswer(status: number): Outcome {
  if (status >= 200 && status < 300) return { kind: "delivered", status };
  const failed = { kind: "failed", status } as const;
  if (status === 410) return { ...failed, error: "The server returned 410 Gone", isGone: true };
  const error =
    status >= 300 && status < 400
      ? `The server redirects (${status}); redirects are not followed`
      : `The server returned ${status}`;
  return { ...failed, error, isGone: false };
}

const MINUTE = 60;
const HOUR = 3_600;
/** After the first attempt, 10 more in 24 hours. */
const DELAYS_SECONDS = [
  5,
  30,
  2 * MINUTE,
  10 * MINUTE,
  30 * MINUTE,
  HOUR,
  2 * HOUR,
  4 * HOUR,
  6 * HOUR,
  10 * HOUR,
];
/** Random variation, so that deliveries that failed together are not retried together. */
const JITTER = 0.2;
const JITTERED_SECONDS = 30 * MINUTE;

/** The time until the next attempt; undefined after the last one. */
export function delayAfter(attempts: number, random = Math.random()): number | undefined {
  const seconds = DELAYS_SECONDS[attempts - 1];
  if (seconds === undefined || seconds > JITTERED_SECONDS) return seconds;
  return seconds * (1 - JITTER * random);
}

/** The longest time for which a failing target, with all its deliveries, is left alone. */
const LONGEST_REST_SECONDS = 5 * MINUTE;
export const restAfter = (failures: number): number =>
  Math.min(2 ** Math.min(failures, 10), LONGEST_REST_SECONDS);

/** Both must be reached: a burst fails often in a moment, and rare events fail seldom. */
export const DISABLE = { failures: 10, hours: 23 };

/**
 * One web push message: its content, its request (RFC 8030, 8291 and 8292, by the library `web-push`), the meaning of the
 * answer, and how many messages a device gets.
 */
import webpush from "web-push";
import type { VapidKeys } from "../../core/push-settings.ts";
import type { OutboundRequest } from "../../infra/outbound/outbound.ts";
import { readAnswer, type Outcome } from "./message.ts";
import { describe, type Notified } from "./sentences.ts";

/** What the service worker (web/public/sw.js) shows. It has no key and decides nothing: a press opens the page. */
export interface PushMessage {
  title: string;
  body: string;
  /** A page of the app. */
  path: string;
  /** A message with the same tag replaces the earlier one. */
  tag: string;
}

/** In a minute, to one device. More become one summary, so that a flood cannot hide a request for approval. */
export const MOST_PER_MINUTE = 5;

export type PushPlan = "wait" | "each" | "summary";

/** With room for each message they are sent one by one; otherwise the last place is for a summary of all. */
export function planPush({ waiting, sent }: { waiting: number; sent: number }): PushPlan {
  const room = MOST_PER_MINUTE - sent;
  if (room <= 0) return "wait";
  // The last place is kept for the summary, unless this is the only one that waits.
  return waiting < room || (waiting === 1 && room === 1) ? "each" : "summary";
}

export function messageOf(event: Notified & { id: string }): PushMessage {
  const { title, detail, path } = describe(event);
  return { title, body: detail, path, tag: event.id };
}

export function summaryOf(events: readonly Notified[]): PushMessage {
  const approvals = events.filter(({ type }) => type === "approval.requested").length;
  return {
    title: `${events.length} things happened to your agents`,
    body:
      approvals === 0
        ? "Open the list to see them."
        : `${approvals === 1 ? "One of them is a request" : `${approvals} of them are requests`} for your approval.`,
    path: approvals === 0 ? "/notifications" : "/approvals",
    tag: "summary",
  };
}

export const testMessage = (deviceId: string): PushMessage => ({
  title: "Notifications work on this device",
  body: "This is the test that you asked for.",
  path: "/notifications/devices",
  tag: deviceId,
});

/** How long the push service keeps a message for a phone that is off. */
const KEPT_SECONDS = 24 * 3600;
const MAX_ANSWER_BYTES = 1_024;

export interface PushTarget {
  endpoint: string;
  p256dh: string;
  auth: string;
}

export function requestOf(
  { endpoint, p256dh, auth }: PushTarget,
  message: PushMessage,
  sender: { keys: VapidKeys; subject: string },
): OutboundRequest {
  const { method, headers, body } = webpush.generateRequestDetails(
    { endpoint, keys: { p256dh, auth } },
    JSON.stringify(message),
    {
      vapidDetails: { subject: sender.subject, ...sender.keys },
      TTL: KEPT_SECONDS,
      urgency: "high",
    },
  );
  return {
    url: endpoint,
    method,
    headers,
    body,
    maxBytes: MAX_ANSWER_BYTES,
    isPartialWanted: true,
  };
}

/** 404 and 410: the browser has ended the subscription. */
export function readPushAnswer(status: number): Outcome {
  const outcome = readAnswer(status);
  return outcome.kind === "failed" && status === 404 ? { ...outcome, isGone: true } : outcome;
}

/** Push services write to it if we misbehave. They refuse a URL that is not https. */
export const subjectOf = (publicUrl: string, mailFrom: string | undefined): string =>
  publicUrl.startsWith("https:") ? publicUrl : `mailto:${mailFrom ?? "purser@localhost"}`;

import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { ownEndpointHash } from "../../lib/push.ts";
import { keys } from "../../lib/query-keys.ts";
import type {
  Email,
  FailingChannel,
  Notification,
  Page,
  PushDevicePage,
  Webhook,
  WebhookDelivery,
  WebhookWithSecret,
} from "../../lib/wire.ts";

interface NotificationFilter {
  type: string | undefined;
  agentId: string | undefined;
  unread: "true" | undefined;
}

export const notificationsQuery = (filter: NotificationFilter) => ({
  ...pagedQuery<Notification>(keys.notifications(filter), "/api/notifications", { ...filter }),
  refetchInterval: 30_000,
});

interface News {
  items: Notification[];
  unread: number;
  failing: FailingChannel[];
}

export const unreadQuery = queryOptions({
  queryKey: keys.unread,
  queryFn: ({ signal }) => api.get<News>("/api/notifications", { signal, query: { limit: 1 } }),
  refetchInterval: 30_000,
});

/** These, or all that happened up to a time: what came later was not seen. */
export const markRead = (which: { ids: string[] } | { before: string }): Promise<unknown> =>
  api.post("/api/notifications/read", which);

export const devicesQuery = queryOptions({
  queryKey: keys.pushDevices,
  queryFn: ({ signal }) => api.get<PushDevicePage>("/api/notifications/push", { signal }),
  // A device that fails or is gone shows it without a reload.
  refetchInterval: 15_000,
});
export const ownHashQuery = queryOptions({
  queryKey: keys.ownEndpoint,
  queryFn: ownEndpointHash,
});
export const removeDevice = (id: string): Promise<unknown> =>
  api.delete(`/api/notifications/push/${id}`);
export const chooseEvents = (id: string, types: readonly string[]): Promise<unknown> =>
  api.patch(`/api/notifications/push/${id}`, { types });
export const testDevice = (id: string): Promise<{ delivered: boolean; error: string | null }> =>
  api.post(`/api/notifications/push/${id}/test`);

/** At most ten webhooks, so one page contains them. */
export const webhooksQuery = queryOptions({
  queryKey: keys.webhooks,
  queryFn: ({ signal }) => api.get<Page<Webhook>>("/api/webhooks", { signal }),
  // The service may disable a webhook while the page is open.
  refetchInterval: 15_000,
});

export const deliveriesQuery = (webhookId: string, status: string) => ({
  ...pagedQuery<WebhookDelivery>(
    keys.deliveries(webhookId, status),
    `/api/webhooks/${webhookId}/deliveries`,
    { status },
  ),
  // A test or a resend has a result within seconds.
  refetchInterval: 3_000,
});

interface WebhookDraft {
  url: string;
  types: string[];
  description: string;
}

export const createWebhook = (draft: WebhookDraft): Promise<WebhookWithSecret> =>
  api.post("/api/webhooks", draft);
export const changeWebhook = (
  id: string,
  changes: Partial<WebhookDraft> & { status?: "active" | "paused" },
): Promise<unknown> => api.patch(`/api/webhooks/${id}`, changes);
export const deleteWebhook = (id: string): Promise<unknown> => api.delete(`/api/webhooks/${id}`);
export const rotateSecret = (id: string, graceHours: number): Promise<WebhookWithSecret> =>
  api.post(`/api/webhooks/${id}/rotate-secret`, { graceHours });
export const testWebhook = (id: string): Promise<unknown> => api.post(`/api/webhooks/${id}/test`);
export const resend = (webhookId: string, deliveryId: string): Promise<unknown> =>
  api.post(`/api/webhooks/${webhookId}/deliveries/${deliveryId}/resend`);

export const emailQuery = queryOptions({
  queryKey: keys.email,
  queryFn: ({ signal }) => api.get<Email>("/api/email", { signal }),
});
export const setEmail = (wanted: {
  address: string;
  digest?: string;
  urgent?: string[];
}): Promise<Email> => api.put("/api/email", wanted);
export const confirmEmail = (token: string): Promise<Email> =>
  api.post("/api/email/confirm", { token });
export const removeEmail = (): Promise<unknown> => api.delete("/api/email");
export const unsubscribe = (token: string): Promise<unknown> =>
  api.post(`/api/email/unsubscribe?token=${encodeURIComponent(token)}`);

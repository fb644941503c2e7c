import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type {
  Email,
  Notification,
  Page,
  Webhook,
  WebhookDelivery,
  WebhookWithSecret,
} from "../../lib/wire.ts";

const nextCursor = (page: { nextCursor: string | null }): string | undefined =>
  page.nextCursor ?? undefined;

export const notificationsQuery = (type: string) =>
  infiniteQueryOptions({
    queryKey: keys.notifications(type),
    queryFn: ({ signal, pageParam }) =>
      api.get<Page<Notification>>("/api/notifications", {
        signal,
        query: { type, cursor: pageParam },
      }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: nextCursor,
    refetchInterval: 30_000,
  });

/** At most ten webhooks, so one page contains them. */
export const webhooksQuery = queryOptions({
  queryKey: keys.webhooks,
  queryFn: ({ signal }) => api.get<Page<Webhook>>("/api/webhooks", { signal }),
  // The service may disable a webhook while the page is open.
  refetchInterval: 15_000,
});

export const deliveriesQuery = (webhookId: string, status: string) =>
  infiniteQueryOptions({
    queryKey: keys.deliveries(webhookId, status),
    queryFn: ({ signal, pageParam }) =>
      api.get<Page<WebhookDelivery>>(`/api/webhooks/${webhookId}/deliveries`, {
        signal,
        query: { status, cursor: pageParam },
      }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: nextCursor,
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

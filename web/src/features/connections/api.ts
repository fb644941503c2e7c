import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keyRequest } from "../../lib/orders/requests.ts";
import { signed } from "../../lib/orders/signed.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Agent, Connection, ConsentRequest } from "../../lib/wire.ts";

/** A repeated parameter is refused, because two readers might use different values of it. */
export function parametersIn(search: string): Record<string, string> | undefined {
  const parameters = new URLSearchParams(search);
  const names = [...parameters.keys()];
  return new Set(names).size === names.length ? Object.fromEntries(parameters) : undefined;
}

/** Creates the consent request for this session: once, and again only when the user retries. */
export const consentQuery = (parameters: Record<string, string>) =>
  queryOptions({
    queryKey: keys.consent(parameters),
    queryFn: () => api.post<ConsentRequest>("/api/oauth/requests", parameters),
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 0,
    retry: false,
    refetchOnWindowFocus: false,
    refetchOnReconnect: false,
  });

interface Answered {
  redirectTo: string;
}

export const allowConsent = (consent: ConsentRequest, agent: Agent): Promise<Answered> =>
  signed(
    keyRequest({
      agent,
      title: "Connect the program",
      what: "Program",
      label: consent.label,
      expiresAt: consent.keyExpiresAt,
    }),
    (signature) =>
      api.post(`/api/oauth/requests/${consent.id}/allow`, { agentId: agent.id, ...signature }),
  );

export const denyConsent = (consent: ConsentRequest): Promise<Answered> =>
  api.post(`/api/oauth/requests/${consent.id}/deny`);

/**
 * Navigates only to URLs of programs, never to a URL that would run in this page, even if the server sent it.
 */
export function goTo(redirectTo: string): void {
  const { protocol } = new URL(redirectTo);
  if (/^(javascript|data|blob|file|vbscript|about|filesystem):$/.test(protocol))
    throw new Error("The program's return address is not valid.");
  globalThis.location.assign(redirectTo);
}

export const connectionsQuery = (agentId: string) =>
  pagedQuery<Connection>(keys.connections(agentId), `/api/agents/${agentId}/connections`);

export const endConnection = (agentId: string, connectionId: string): Promise<unknown> =>
  api.delete(`/api/agents/${agentId}/connections/${connectionId}`);

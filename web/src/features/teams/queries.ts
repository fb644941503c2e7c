/** What every page asks for: without what signs, so that the first page stays small. */
import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Team, WaitingOrder } from "../../lib/wire.ts";

export const teamQuery = queryOptions({
  queryKey: keys.team,
  queryFn: ({ signal }) => api.get<Team>("/api/team", { signal }),
});

/** Orders of the team; for one's own account: invitations. At most 100. */
export const waitingQuery = queryOptions({
  queryKey: keys.waiting,
  queryFn: async ({ signal }) =>
    (await api.get<{ items: WaitingOrder[] }>("/api/waiting-orders?limit=100", { signal })).items,
  refetchInterval: 30_000,
});

export const waitingOrderQuery = (id: string) =>
  queryOptions({
    queryKey: keys.waitingOrder(id),
    queryFn: ({ signal }) =>
      api.get<WaitingOrder>(`/api/waiting-orders/${encodeURIComponent(id)}`, { signal }),
    refetchInterval: 30_000,
  });

/** Those whose turn it is: to sign it, or to carry it out. */
export const needsYou = ({ canSign, isComplete }: WaitingOrder, isMember: boolean): boolean =>
  canSign || (isComplete && isMember);

export const actFor = (owner: string | null): Promise<unknown> =>
  api.post("/api/auth/act-for", { owner });

import { infiniteQueryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { AuditEntry, Page } from "../../lib/wire.ts";

export const auditQuery = (agentId: string) =>
  infiniteQueryOptions({
    queryKey: keys.audit(agentId),
    queryFn: ({ signal, pageParam }) =>
      api.get<Page<AuditEntry>>(`/api/agents/${agentId}/audit`, {
        signal,
        query: { limit: 50, cursor: pageParam },
      }),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.nextCursor ?? undefined,
  });

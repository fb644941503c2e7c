import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import type { ClosingAnswer, AgentChannel, PaymentChannelTotal } from "../../lib/wire.ts";

const pathOf = (agentId: string): string => `/api/agents/${agentId}/channels`;

export const channelsQuery = (agentId: string) =>
  pagedQuery<AgentChannel>(keys.channels(agentId), pathOf(agentId));

/** Of all channels, however many the list has. */
export const channelTotalQuery = (agentId: string) =>
  queryOptions({
    queryKey: keys.channelTotal(agentId),
    queryFn: ({ signal }) =>
      api.get<{ total: PaymentChannelTotal }>(pathOf(agentId), { query: { limit: 1 }, signal }),
    select: ({ total }) => total,
  });

/** Without a channel: all of the agent's. Closing only takes away, so it needs no signature. */
export const closeChannels = (agentId: string, channelId?: string): Promise<ClosingAnswer> =>
  api.post(`${pathOf(agentId)}/${channelId === undefined ? "" : `${channelId}/`}close`);

import { Button, EmptyState } from "@mantine/core";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { isSameAddress } from "../../lib/address.ts";
import type { Agent } from "../../lib/wire.ts";
import { useRights } from "../../shared/session/OwnerOnly.tsx";
import { channelsQuery, channelTotalQuery } from "./api.ts";
import { ChannelRow } from "./ChannelRow.tsx";
import { CloseDialog, type ToClose } from "./CloseDialog.tsx";
import { sellerOf } from "./words.ts";

/** The agent's payment channels, and how their money comes back. */
export function Channels({ agent }: { agent: Agent }): ReactNode {
  const query = useInfiniteQuery(channelsQuery(agent.id));
  const { data: total } = useQuery(channelTotalQuery(agent.id));
  const rights = useRights();
  const [closing, setClosing] = useState<ToClose>();
  const labelOf = (address: string): string | undefined =>
    agent.allowlist.find((entry) => isSameAddress(entry.address, address))?.label || undefined;
  const closeAll = rights !== "read" && total !== undefined && total.open > 0 && (
    <Button
      onClick={() => {
        setClosing({ channels: total.open, delaySeconds: total.longestDelaySeconds });
      }}
    >
      Close all
    </Button>
  );
  return (
    <Section
      flush
      title="Payment channels"
      hint="Money that the agent deposited to pay one seller without a transaction for each payment. It is not in the wallet's balance; what the seller does not charge comes back."
      actions={closeAll}
    >
      <List
        query={query}
        what="payment channels"
        failed="The payment channels could not be loaded"
        placeholders={2}
        empty={
          <EmptyState
            title="No payment channels"
            description="They appear when the agent pays a seller that offers them, and its rules allow it."
          />
        }
      >
        {(channel) => (
          <ChannelRow
            key={channel.id}
            channel={channel}
            label={labelOf(channel.payTo)}
            onClose={() => {
              setClosing({
                channels: 1,
                one: { id: channel.id, seller: sellerOf(channel) },
                delaySeconds: channel.withdrawDelaySeconds,
              });
            }}
          />
        )}
      </List>
      <CloseDialog
        agentId={agent.id}
        closing={closing}
        onClose={() => {
          setClosing(undefined);
        }}
      />
    </Section>
  );
}

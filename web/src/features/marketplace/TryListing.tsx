import { type ReactNode, useState } from "react";
import { LinkButton } from "../../components/Button.tsx";
import { Muted, Row, Section, Stack } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Select } from "../../components/Select.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { isSameAddress } from "../../lib/address.ts";
import type { Agent, Listing } from "../../lib/wire.ts";
import { Trial } from "./Trial.tsx";

interface TryListingProps {
  listing: Listing;
  agents: {
    data: Agent[] | undefined;
    isPending: boolean;
    error: unknown;
    refetch: () => unknown;
  };
  /** Adds the seller to an agent's allowlist; the rules belong to another feature. */
  allowSeller: (agent: Agent) => ReactNode;
}

/**
 * Checks what a call would cost this agent and whether its rules allow it; then pays, if the owner confirms.
 */
export function TryListing({ listing, agents, allowSeller }: TryListingProps): ReactNode {
  const [chosen, setChosen] = useState("");
  const list = (agents.data ?? []).filter((agent) => agent.network === listing.network);
  const agent = list.find(({ id }) => id === chosen) ?? list[0];
  return (
    <Section title="Try with an agent" hint="A dry run checks price and rules without paying.">
      <QueryStatus query={agents} what="your agents" failed="Your agents could not be loaded">
        <Skeleton shape="row" />
      </QueryStatus>
      {agents.data && !agent && (
        <Stack gap={3}>
          <p>You have no agent on this network yet.</p>
          <Row>
            <LinkButton to="/agents/new" variant="primary">
              New agent
            </LinkButton>
          </Row>
        </Stack>
      )}
      {agent && (
        <Stack gap={4}>
          <Select
            label="Agent"
            value={agent.id}
            onChange={setChosen}
            options={list.map(({ id, name }) => ({ value: id, label: name }))}
          />
          {agent.allowlist.some((entry) => isSameAddress(entry.address, listing.payTo)) ? (
            <Muted>This seller is on the agent&rsquo;s allowlist.</Muted>
          ) : (
            <Row key={`allow-${agent.id}`}>
              <Muted>This seller is not on the agent&rsquo;s allowlist.</Muted>
              {allowSeller(agent)}
            </Row>
          )}
          <Trial key={agent.id} agentId={agent.id} listing={listing} />
        </Stack>
      )}
    </Section>
  );
}

import { Button, Group, NativeSelect, Stack, Text } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Link } from "react-router";
import { Section } from "../../components/Layout.tsx";
import { QueryStatus, type QueryStatusProps } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { isSameAddress } from "../../lib/address.ts";
import type { Agent, Listing } from "../../lib/wire.ts";
import { Trial } from "./Trial.tsx";

interface TryListingProps {
  listing: Listing;
  agents: QueryStatusProps["query"] & { data: Agent[] | undefined };
  /** The field that searches the agents, where there are many; and the button for more of them. */
  search: ReactNode;
  more: ReactNode;
  /** Adds the seller to an agent's allowlist; the rules belong to another feature. */
  allowSeller: (agent: Agent) => ReactNode;
}

/**
 * Checks what a call would cost this agent and whether its rules allow it; then pays, if the owner confirms.
 */
export function TryListing(props: TryListingProps): ReactNode {
  const { listing, agents, search, more, allowSeller } = props;
  // The agent that pays stays the same while a search hides it.
  const [chosen, setChosen] = useState<Agent>();
  const found = (agents.data ?? []).filter((agent) => agent.network === listing.network);
  const agent = found.find(({ id }) => id === chosen?.id) ?? chosen ?? found[0];
  if (agent && !chosen) setChosen(agent);
  const list = agent && !found.includes(agent) ? [agent, ...found] : found;
  return (
    <Section title="Try with an agent" hint="A dry run checks price and rules without paying.">
      <QueryStatus query={agents} what="your agents" failed="Your agents could not be loaded">
        <Skeleton shape="row" />
      </QueryStatus>
      {search && (
        <Group mb="sm">
          {search}
          {more}
        </Group>
      )}
      {agents.data && !agent && search && <p>No agent on this network matches.</p>}
      {agents.data && !agent && !search && (
        <Stack gap="sm">
          <p>You have no agent on this network yet.</p>
          <Group>
            <Button component={Link} to="/agents/new" variant="filled">
              New agent
            </Button>
          </Group>
        </Stack>
      )}
      {agent && (
        <Stack>
          <NativeSelect
            label="Agent"
            value={agent.id}
            onChange={(event) => {
              setChosen(list.find(({ id }) => id === event.currentTarget.value));
            }}
            data={list.map(({ id, name }) => ({ value: id, label: name }))}
          />
          {agent.allowlist.some((entry) => isSameAddress(entry.address, listing.payTo)) ? (
            <Text span c="dimmed" size="sm">
              This seller is on the agent&rsquo;s allowlist.
            </Text>
          ) : (
            <Group key={`allow-${agent.id}`}>
              <Text span c="dimmed" size="sm">
                This seller is not on the agent&rsquo;s allowlist.
              </Text>
              {allowSeller(agent)}
            </Group>
          )}
          <Trial key={agent.id} agentId={agent.id} listing={listing} />
        </Stack>
      )}
    </Section>
  );
}

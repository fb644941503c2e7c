import { Button, Group, Radio, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { PlusIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { availableNow } from "../../lib/available.ts";
import type { Agent } from "../../lib/wire.ts";
import styles from "./Consent.module.css";

interface ChooseAgentProps {
  agents: Agent[];
  search: ReactNode;
  more: ReactNode;
  /** Undefined for a new agent. */
  chosen: Agent | undefined;
  onChoose: (agent: Agent | undefined) => void;
  createAgent: ReactNode;
}

/** The choice of one agent: the program gets the permissions of that agent only. */
export function ChooseAgent(props: ChooseAgentProps): ReactNode {
  const { search, more, chosen, onChoose, createAgent } = props;
  const isCreating = chosen === undefined;
  const isHidden = chosen && props.agents.every(({ id }) => id !== chosen.id);
  const agents = isHidden ? [chosen, ...props.agents] : props.agents;
  return (
    <>
      {(agents.length > 0 || search) && (
        <Section
          title="Which agent may it use?"
          actions={
            !isCreating && (
              <Button
                size="xs"
                onClick={() => {
                  onChoose(undefined);
                }}
              >
                <PlusIcon size={16} />
                New agent
              </Button>
            )
          }
        >
          {search && <Group mb="sm">{search}</Group>}
          <Radio.Group
            className={styles.agents}
            value={chosen?.id ?? ""}
            onChange={(id) => {
              onChoose(agents.find((agent) => agent.id === id));
            }}
            aria-label="Agent"
          >
            <Stack gap="xs">
              {agents.map((agent) => (
                <label key={agent.id} className={styles.agent}>
                  <Radio value={agent.id} />
                  <span className={styles.agentName}>
                    <strong>{agent.name}</strong>
                    <span>{availableNow(agent)}</span>
                  </span>
                  <Money amount={agent.balance} />
                </label>
              ))}
            </Stack>
            {more}
          </Radio.Group>
        </Section>
      )}
      {isCreating && (
        <Stack gap="sm">
          <Group>
            <h2>A new agent</h2>
            {agents.length > 0 && (
              <Button
                variant="subtle"
                size="xs"
                onClick={() => {
                  onChoose(agents[0]);
                }}
              >
                An existing agent
              </Button>
            )}
          </Group>
          <Text span c="dimmed" size="sm">
            An agent has its own wallet and spending rules that it cannot exceed.
          </Text>
          {createAgent}
        </Stack>
      )}
    </>
  );
}

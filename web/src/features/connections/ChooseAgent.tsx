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
  /** Empty for a new agent. */
  chosen: string;
  onChoose: (id: string) => void;
  createAgent: ReactNode;
}

/** The choice of one agent: the program gets the permissions of that agent only. */
export function ChooseAgent(props: ChooseAgentProps): ReactNode {
  const { agents, chosen, onChoose, createAgent } = props;
  const isCreating = chosen === "";
  return (
    <>
      {agents.length > 0 && (
        <Section
          title="Which agent may it use?"
          actions={
            !isCreating && (
              <Button
                size="xs"
                onClick={() => {
                  onChoose("");
                }}
              >
                <PlusIcon size={16} />
                New agent
              </Button>
            )
          }
        >
          <Radio.Group value={chosen} onChange={onChoose} aria-label="Agent">
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
                  onChoose(agents[0]?.id ?? "");
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

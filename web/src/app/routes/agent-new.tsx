import { type ReactNode, useState } from "react";
import { useBlocker, useNavigate } from "react-router";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { Section } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { KeyReveal } from "../../features/keys/KeyReveal.tsx";
import { PickSeller } from "../../features/marketplace/PickSeller.tsx";
import { useSuggestedPayees } from "../../features/marketplace/suggested.ts";
import { CreateAgent } from "../../features/rules/CreateAgent.tsx";
import type { CreatedAgent } from "../../lib/wire.ts";
import { useNetwork } from "../../shared/info.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { FirstSteps } from "../FirstSteps.tsx";
import styles from "./agent.module.css";

export default function NewAgentScreen(): ReactNode {
  const navigate = useNavigate();
  const [created, setCreated] = useState<CreatedAgent>();
  const [isDone, setDone] = useState(false);
  const suggested = useSuggestedPayees(useNetwork()?.id);
  const blocker = useBlocker(created !== undefined && !isDone);

  if (!created) {
    return (
      <>
        <PageHeader
          title="New agent"
          lead="An agent has its own wallet and spending rules that it cannot exceed."
        />
        <OwnerOnly isScreen>
          <CreateAgent
            onCreated={(made) => {
              setCreated(made);
              globalThis.scrollTo(0, 0);
            }}
            suggested={suggested}
            picker={(add, has) => <PickSeller onPick={add} has={has} />}
          />
        </OwnerOnly>
      </>
    );
  }
  const finish = (): void => {
    setDone(true);
    // Navigate after the next render, when the blocker knows that the key was saved.
    setTimeout(() => void navigate(`/agents/${created.agent.id}`, { replace: true }), 0);
  };
  return (
    <>
      <PageHeader
        key="created"
        title={`${created.agent.name} is ready`}
        lead="Give the agent this key and send USDC to its address. Then it can pay."
      />
      <div className={styles.created}>
        <Section title="API key">
          <KeyReveal
            apiKey={created.apiKey}
            agentName={created.agent.name}
            doneLabel="Go to the agent"
            onDone={finish}
          />
        </Section>
        <FirstSteps agentId={created.agent.id} />
      </div>
      <ConfirmDialog
        opened={blocker.state === "blocked"}
        title="Leave without the key?"
        cancel="Stay"
        confirm="Leave"
        onConfirm={() => blocker.proceed?.()}
        onCancel={() => blocker.reset?.()}
      >
        The key cannot be shown again. You can create another one on the agent&rsquo;s page.
      </ConfirmDialog>
    </>
  );
}

import { type ReactNode, useState } from "react";
import { useBlocker, useNavigate } from "react-router";
import { Button } from "../../components/Button.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Row, Section, Stack } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { CreateAgent } from "../../features/rules/CreateAgent.tsx";
import { KeyReveal } from "../../features/keys/KeyReveal.tsx";
import { PickSeller } from "../../features/marketplace/PickSeller.tsx";
import type { CreatedAgent } from "../../lib/wire.ts";

export default function NewAgentScreen(): ReactNode {
  const navigate = useNavigate();
  const [created, setCreated] = useState<CreatedAgent>();
  const [isDone, setDone] = useState(false);
  const blocker = useBlocker(created !== undefined && !isDone);

  if (!created) {
    return (
      <>
        <PageHeader title="New agent" lead="A wallet of its own, and the rules it cannot break." />
        <CreateAgent
          onCreated={setCreated}
          picker={(add, has) => <PickSeller onPick={add} has={has} />}
        />
      </>
    );
  }
  const finish = (): void => {
    setDone(true);
    // The blocker must have seen that the key was saved before the way is taken.
    setTimeout(() => void navigate(`/agents/${created.agent.id}`, { replace: true }), 0);
  };
  return (
    <>
      <PageHeader
        title={`${created.agent.name} is ready`}
        lead="Give it this key. Then send USDC to its address, and it can pay."
      />
      <Section title="API key">
        <KeyReveal
          apiKey={created.apiKey}
          agentName={created.agent.name}
          doneLabel="Go to the agent"
          onDone={finish}
        />
      </Section>
      <Dialog
        opened={blocker.state === "blocked"}
        onClose={() => blocker.reset?.()}
        title="Leave without the key?"
        size="sm"
      >
        <Stack gap={4}>
          <p>
            The key cannot be shown again. You could create another one on the agent&rsquo;s page.
          </p>
          <Row end>
            <Button onClick={() => blocker.reset?.()}>Stay</Button>
            <Button variant="danger" onClick={() => blocker.proceed?.()}>
              Leave
            </Button>
          </Row>
        </Stack>
      </Dialog>
    </>
  );
}

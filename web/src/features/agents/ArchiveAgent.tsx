import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useNavigate } from "react-router";
import { Button } from "../../components/Button.tsx";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { Row, Section, Stack } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { atomic } from "../../lib/money.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent } from "../../lib/wire.ts";
import { archiveAgent } from "./api.ts";

/** The end of an agent. The server refuses it while a cent could be stranded; the screen says so first. */
export function ArchiveAgent({ agent }: { agent: Agent }): ReactNode {
  const navigate = useNavigate();
  const [isAsking, setAsking] = useState(false);
  const isEmpty = agent.balance !== null && atomic(agent.balance) === 0n;
  const archive = useMutation({
    mutationFn: () => archiveAgent(agent.id),
    onSuccess: async () => {
      notifications.show({ message: `${agent.name} is archived.` });
      await navigate("/agents");
    },
    onSettled: invalidate.afterRules,
  });
  if (agent.status === "archived") return null;
  return (
    <Section title="Archive" hint="Ends the agent and its keys. Its history stays.">
      <Stack gap={3}>
        {!isEmpty && (
          <p>
            {agent.balance === null ? (
              "The chain cannot be read just now, so nobody can say whether money would be stranded."
            ) : (
              <>
                The agent holds <Money amount={agent.balance} />. Withdraw everything first; then it
                can be archived.
              </>
            )}
          </p>
        )}
        <Row>
          <Button
            disabled={!isEmpty}
            onClick={() => {
              archive.reset();
              setAsking(true);
            }}
          >
            Archive agent…
          </Button>
        </Row>
      </Stack>
      <ConfirmDialog
        opened={isAsking}
        title={`Archive ${agent.name}?`}
        confirm="Archive"
        pending={archive.isPending && "Archiving…"}
        failed="The agent was not archived"
        error={archive.error}
        onCancel={() => {
          setAsking(false);
        }}
        onConfirm={() => {
          archive.mutate();
        }}
      >
        Its keys stop working at once, and it cannot be brought back. USDC that still arrives at its
        address can be withdrawn from its page.
      </ConfirmDialog>
    </Section>
  );
}

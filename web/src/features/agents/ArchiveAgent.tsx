import { Button, Group, Stack } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useNavigate } from "react-router";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { Section } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { mayHold, totalOf } from "../../lib/balances.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { useRights } from "../../shared/session/OwnerOnly.tsx";
import { archiveAgent } from "./api.ts";

/**
 * Archives an agent. The server refuses while the agent may hold money, so the screen explains that first.
 */
export function ArchiveAgent({ agent }: { agent: Agent }): ReactNode {
  const navigate = useNavigate();
  const rights = useRights();
  const [isConfirming, confirming] = useDisclosure();
  const nameOf = useNetworkNames();
  const { known, silent } = totalOf(agent.balances);
  const isEmpty = known === 0n && silent.length === 0;
  const holding = agent.balances.filter(mayHold).map(({ network }) => network);
  const archive = useMutation({
    mutationFn: () => archiveAgent(agent.id),
    onSuccess: async () => {
      notifications.show({ message: `${agent.name} is archived.` });
      await navigate("/agents");
    },
    onSettled: invalidate.afterRules,
  });
  if (agent.status === "archived" || rights === "read") return null;
  return (
    <Section title="Archive" hint="Stops the agent and revokes its keys. Its history is kept.">
      <Stack gap="sm">
        {!isEmpty && (
          <p>
            {known === 0n ? (
              `${silent.map(nameOf).join(" and ")} cannot be read right now, so Purser cannot check that the agent is empty.`
            ) : (
              <>
                The agent holds <Money amount={known} />
                {agent.balances.length > 1 && ` (${holding.map(nameOf).join(", ")})`}. Withdraw
                everything before you archive it.
              </>
            )}
          </p>
        )}
        <Group>
          <Button
            disabled={!isEmpty}
            onClick={() => {
              archive.reset();
              confirming.open();
            }}
          >
            Archive agent…
          </Button>
        </Group>
      </Stack>
      <ConfirmDialog
        opened={isConfirming}
        title={`Archive ${agent.name}?`}
        mutation={archive}
        failed="The agent was not archived"
        confirm="Archive"
        pending="Archiving…"
        onCancel={confirming.close}
      >
        Its keys stop working immediately, and it cannot be restored. You can still withdraw USDC
        that arrives at its address.
      </ConfirmDialog>
    </Section>
  );
}

import { Button, Group, Stack } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { Section } from "../../components/Layout.tsx";
import { Meter } from "../../components/Meter.tsx";
import { TimeUntil } from "../../components/RelativeTime.tsx";
import { plural } from "../../lib/plural.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Budget } from "../../lib/wire.ts";
import { NotForViewers, OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { archiveBudget } from "./api.ts";
import { BudgetAgents } from "./BudgetAgents.tsx";
import { BudgetDialog } from "./BudgetDialog.tsx";
import { useSigning } from "./use-signing.ts";

const PERIODS: Readonly<Record<string, string>> = {
  "24h": "24 h",
  "7d": "7 days",
  "30d": "30 days",
};

export function BudgetCard({ budget }: { budget: Budget }): ReactNode {
  const signing = useSigning();
  const [isEditing, editing] = useDisclosure();
  const [isListing, listing] = useDisclosure();
  const [isArchiving, archiving] = useDisclosure();
  const archive = useMutation({
    mutationFn: () => archiveBudget(budget, signing),
    onSuccess: archiving.close,
    onSettled: invalidate.afterBudget,
  });
  const { name, windows } = budget;
  return (
    <Section
      title={name}
      hint={`${plural(budget.agentCount, "agent")} in this budget`}
      actions={
        <Group gap="xs">
          <Button size="xs" onClick={listing.open}>
            Agents<span className="sr-only"> of {name}</span>
          </Button>
          <NotForViewers>
            <Button size="xs" onClick={editing.open}>
              Change<span className="sr-only"> {name}</span>
            </Button>
          </NotForViewers>
          <OwnerOnly>
            <Button
              size="xs"
              onClick={() => {
                archive.reset();
                archiving.open();
              }}
            >
              Archive<span className="sr-only"> {name}</span>
            </Button>
          </OwnerOnly>
        </Group>
      }
    >
      <Stack>
        {windows.map(({ window, limit, used, availableAt }) => (
          <div key={window}>
            <Meter
              limits={{ limit, spent: used, reserved: "0" }}
              period={PERIODS[window] ?? window}
            />
            {availableAt !== undefined && (
              <TimeUntil label="Something is available again" iso={availableAt} />
            )}
          </div>
        ))}
      </Stack>
      {isEditing && <BudgetDialog budget={budget} onClose={editing.close} />}
      {isListing && <BudgetAgents budget={budget} onClose={listing.close} />}
      <ConfirmDialog
        opened={isArchiving}
        title={`Archive ${name}?`}
        mutation={archive}
        failed="The budget was not archived"
        confirm="Sign and archive"
        pending="Archiving…"
        onCancel={archiving.close}
      >
        It limits none of its agents any more. Their own limits stay. This cannot be undone.
      </ConfirmDialog>
    </Section>
  );
}

import { Button, Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { DownloadIcon } from "../../components/icons.tsx";
import { Columns } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { FoundPayments } from "../../features/payments/FoundPayments.tsx";
import { exportUrl } from "../../features/spending/api.ts";
import { SpendingFilters } from "../../features/spending/SpendingFilters.tsx";
import { SpendingTable } from "../../features/spending/SpendingTable.tsx";
import { SpendingTotals } from "../../features/spending/SpendingTotals.tsx";
import { useChoice } from "../../features/spending/use-choice.ts";

export default function SpendingScreen(): ReactNode {
  const choice = useChoice();
  const { range } = choice;
  return (
    <>
      <PageHeader
        title="Spending"
        lead="What all your agents paid."
        actions={
          <Group>
            <Button component="a" href={exportUrl("movements.csv", range)} download>
              <DownloadIcon size={16} />
              CSV
            </Button>
            <Button component="a" href={exportUrl("ledger.beancount", range)} download>
              <DownloadIcon size={16} />
              Beancount
            </Button>
          </Group>
        }
      />
      <Stack gap="lg">
        <SpendingFilters choice={choice} />
        <SpendingTotals range={range} />
        <Columns>
          <SpendingTable by="payee" title="Payees" range={range} onChoose={choice.payee.set} />
          <SpendingTable by="site" title="Sites" range={range} onChoose={choice.site.set} />
          <SpendingTable by="agent" title="Agents" range={range} onChoose={choice.agentId.set} />
          <SpendingTable by="task" title="Tasks" range={range} onChoose={choice.task.set} />
        </Columns>
        <FoundPayments search={range} />
      </Stack>
    </>
  );
}

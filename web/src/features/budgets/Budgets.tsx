import { Button, EmptyState, Group, Stack } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { PlusIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { NotForViewers } from "../../shared/session/OwnerOnly.tsx";
import { budgetsQuery } from "./api.ts";
import { BudgetCard } from "./BudgetCard.tsx";
import { BudgetDialog } from "./BudgetDialog.tsx";

export function Budgets(): ReactNode {
  const query = useInfiniteQuery(budgetsQuery);
  const [isMaking, making] = useDisclosure();
  const create = (
    <NotForViewers>
      <Button variant="filled" onClick={making.open}>
        <PlusIcon size={16} />
        New budget
      </Button>
    </NotForViewers>
  );
  return (
    <Stack gap="lg">
      <QueryStatus query={query} what="budgets" failed="Budgets could not be loaded">
        <Skeleton shape="block" count={2} />
      </QueryStatus>
      {query.data?.length === 0 && (
        <Section>
          <EmptyState
            title="No budgets"
            description="A budget is a ceiling for several agents together, such as a team. Creating one only limits, so it needs no signature."
          />
          <Group justify="center">{create}</Group>
        </Section>
      )}
      {query.data && query.data.length > 0 && <Group>{create}</Group>}
      {query.data?.map((budget) => (
        <BudgetCard key={budget.id} budget={budget} />
      ))}
      {isMaking && <BudgetDialog onClose={making.close} />}
    </Stack>
  );
}

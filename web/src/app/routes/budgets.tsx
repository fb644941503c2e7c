import type { ReactNode } from "react";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Budgets } from "../../features/budgets/Budgets.tsx";

export default function BudgetsScreen(): ReactNode {
  return (
    <>
      <PageHeader
        title="Budgets"
        lead="Limits that several agents share. Each agent keeps its own limits too."
      />
      <Budgets />
    </>
  );
}

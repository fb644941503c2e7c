import type { ReactNode } from "react";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Approvals } from "../../features/approvals/Approvals.tsx";

export default function ApprovalsScreen(): ReactNode {
  return (
    <>
      <PageHeader title="Approvals" lead="Payments that your agents need your permission for." />
      <Approvals />
    </>
  );
}

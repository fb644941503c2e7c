import { Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { PageHeader } from "../../components/PageHeader.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import {
  FailingDeliveries,
  LowAccounts,
  PaidMerchants,
} from "../../features/operator/Accounts.tsx";
import { overviewQuery } from "../../features/operator/api.ts";
import { Attention } from "../../features/operator/Attention.tsx";
import { Lanes } from "../../features/operator/Lanes.tsx";
import { Differences, Reconciliation } from "../../features/operator/Reconciliation.tsx";
import {
  Checks,
  Configuration,
  Processes,
  ServiceRecord,
} from "../../features/operator/Service.tsx";
import { Work } from "../../features/operator/Work.tsx";
import { useOwner } from "../../shared/session/session-context.ts";
import NotFoundScreen from "./not-found.tsx";

/** For the accounts in OPERATORS; for everybody else the page does not exist. */
export default function OperatorScreen(): ReactNode {
  const { operator } = useOwner();
  return operator ? <Operator /> : <NotFoundScreen />;
}

function Operator(): ReactNode {
  const query = useQuery(overviewQuery);
  const { data: overview } = query;
  return (
    <>
      <PageHeader title="Operator" lead="Whether money moves, and what needs a person." />
      <Stack gap="lg">
        <QueryStatus
          query={query}
          what="the state of the service"
          failed={
            overview ? "This may be out of date" : "The state of the service could not be loaded"
          }
        >
          <Skeleton shape="block" count={3} />
        </QueryStatus>
        {overview && (
          <>
            <Attention overview={overview} />
            <Lanes overview={overview} />
            <Reconciliation overview={overview} />
            <Differences />
            <Work overview={overview} />
            <LowAccounts />
            <PaidMerchants />
            <FailingDeliveries />
            <Processes overview={overview} />
            <Checks />
            <ServiceRecord />
            <Configuration />
          </>
        )}
      </Stack>
    </>
  );
}

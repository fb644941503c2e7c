import { Button, Group, Stack } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { lazy, type ReactNode, Suspense } from "react";
import { Link } from "react-router";
import { PlusIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { AgentList } from "../../features/agents/AgentList.tsx";
import { agentsQuery } from "../../features/agents/api.ts";
import { ArchivedAgents } from "../../features/agents/ArchivedAgents.tsx";
import { GasLine } from "../../features/agents/GasLine.tsx";
import { LedgerLine } from "../../features/agents/LedgerLine.tsx";
import { AskFor } from "../AskFor.tsx";
import { Totals } from "../../features/agents/Totals.tsx";
import { TemplateLinks } from "../../features/rules/TemplateChoice.tsx";
import { loadPart } from "../../lib/reachable.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";

// Only for an owner who has not paid yet.
const FirstSteps = lazy(() =>
  loadPart(async () => {
    const { FirstSteps: steps } = await import("../FirstSteps.tsx");
    return { default: steps };
  }),
);

export default function AgentsScreen(): ReactNode {
  const agents = useInfiniteQuery(agentsQuery());
  const budgets = (
    <Button component={Link} to="/budgets">
      Budgets
    </Button>
  );
  const create = (
    <OwnerOnly>
      <Button component={Link} to="/agents/new" variant="filled">
        <PlusIcon size={16} />
        New agent
      </Button>
    </OwnerOnly>
  );
  return (
    <>
      <PageHeader
        title="Agents"
        actions={
          agents.data &&
          agents.data.length > 0 && (
            <Group gap="sm">
              {budgets}
              {create}
            </Group>
          )
        }
      />
      <Stack gap="lg">
        <AskFor place="elsewhere" />
        <QueryStatus query={agents} what="agents" failed="Agents could not be loaded">
          <Skeleton shape="row" count={5} />
        </QueryStatus>
        {agents.data?.length === 0 && (
          <Section
            title="No agents yet"
            hint="An agent is a wallet with rules: how much it may spend in 24 hours, how much per payment, and which payees it may pay. Creating one takes a minute and moves no money."
          >
            <OwnerOnly>
              <Stack>
                <p>Start with rules that fit, and change them as you like:</p>
                <TemplateLinks />
                <Group>{create}</Group>
              </Stack>
            </OwnerOnly>
          </Section>
        )}
        {agents.data && agents.data.length > 0 && (
          <>
            <Suspense fallback={null}>
              <FirstSteps />
            </Suspense>
            <Totals />
            <LedgerLine />
            <GasLine />
            <AgentList />
          </>
        )}
        <ArchivedAgents />
      </Stack>
    </>
  );
}

import { EmptyState, Stack, TextInput } from "@mantine/core";
import { useDebouncedValue, useInputState } from "@mantine/hooks";
import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Dialog } from "../../components/Dialog.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { List } from "../../components/List.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Budget, BudgetAgent } from "../../lib/wire.ts";
import { NotForViewers, OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { candidatesQuery, membersQuery, putIn, takeOut } from "./api.ts";
import styles from "./Budgets.module.css";
import { useSigning } from "./use-signing.ts";

const SEARCH_MS = 250;

/** The agents in a budget, and a search for others to put in. */
export function BudgetAgents({
  budget,
  onClose,
}: {
  budget: Budget;
  onClose: () => void;
}): ReactNode {
  const members = useInfiniteQuery(membersQuery(budget.id));
  const [search, setSearch] = useInputState("");
  const [wanted] = useDebouncedValue(search.trim(), SEARCH_MS);
  const agents = useInfiniteQuery(candidatesQuery(wanted));
  const others = agents.data?.filter(
    ({ limits }) => !limits.budgets.some(({ id }) => id === budget.id),
  );
  return (
    <Dialog opened onClose={onClose} title={`Agents of ${budget.name}`}>
      <Stack>
        <section aria-label="In this budget">
          <List
            isFramed
            query={members}
            what="agents"
            failed="The agents could not be loaded"
            empty={<EmptyState title="No agents in this budget" />}
          >
            {(agent) => <Member key={agent.id} budget={budget} agent={agent} />}
          </List>
        </section>
        <NotForViewers>
          <TextInput
            label="Put agents in"
            description="It counts what they pay from then on. Needs no signature"
            placeholder="Name or address"
            value={search}
            onChange={setSearch}
          />
          <section aria-label="Other agents">
            <List
              isFramed
              query={{ ...agents, data: others }}
              what="agents"
              failed="Agents could not be loaded"
              empty={<EmptyState title="No other agent matches" />}
            >
              {(agent) => <Candidate key={agent.id} budget={budget} agent={agent} />}
            </List>
          </section>
        </NotForViewers>
      </Stack>
    </Dialog>
  );
}

function Member({ budget, agent }: { budget: Budget; agent: BudgetAgent }): ReactNode {
  const signing = useSigning();
  const remove = useMutation({
    mutationFn: () => takeOut(budget, agent, signing),
    onSettled: invalidate.afterBudget,
  });
  return (
    <li className={`list-row ${styles.agent}`}>
      <strong>{agent.name}</strong>
      <OwnerOnly>
        <MutationButton size="xs" mutation={remove} pending="Taking out…">
          Take out<span className="sr-only"> {agent.name}</span>
        </MutationButton>
      </OwnerOnly>
      {remove.isError && <ErrorNotice title="The agent was not taken out" error={remove.error} />}
    </li>
  );
}

function Candidate({
  budget,
  agent,
}: {
  budget: Budget;
  agent: Pick<BudgetAgent, "id" | "name">;
}): ReactNode {
  const add = useMutation({
    mutationFn: () => putIn(budget, agent.id),
    onSettled: invalidate.afterBudget,
  });
  return (
    <li className={`list-row ${styles.agent}`}>
      <span>{agent.name}</span>
      <MutationButton size="xs" mutation={add} pending="Putting in…">
        Put in<span className="sr-only"> {agent.name}</span>
      </MutationButton>
      {add.isError && <ErrorNotice title="The agent was not put in" error={add.error} />}
    </li>
  );
}

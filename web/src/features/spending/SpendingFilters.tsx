import { Button, Group, NativeSelect, Stack, TextInput } from "@mantine/core";
import { useDisclosure, useInputState } from "@mantine/hooks";
import { useInfiniteQuery, useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Dialog } from "../../components/Dialog.tsx";
import { SearchIcon } from "../../components/icons.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { RequestForm } from "../../components/RequestForm.tsx";
import { toastFailure } from "../../components/toast.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { filtersQuery, removeFilter, saveFilter, spendingQuery } from "./api.ts";
import { PERIODS } from "./period.ts";
import styles from "./Spending.module.css";
import type { Choice } from "./use-choice.ts";

export const SpendingFilters = ({ choice }: { choice: Choice }): ReactNode => (
  <Stack gap="sm">
    <Group align="flex-end">
      <TextInput
        flex="1 1 240px"
        aria-label="Search payments"
        placeholder="Payee, hash, memo, site or amount"
        leftSection={<SearchIcon size={16} />}
        {...choice.search}
      />
      <NativeSelect flex="1 1 150px" aria-label="Period" data={[...PERIODS]} {...choice.period} />
      {choice.period.value === "custom" && (
        <>
          <TextInput
            flex="1 1 150px"
            miw={0}
            type="date"
            label="First day (UTC)"
            {...choice.from}
          />
          <TextInput flex="1 1 150px" miw={0} type="date" label="Last day (UTC)" {...choice.to} />
        </>
      )}
      <Saved choice={choice} />
    </Group>
    <Chosen choice={choice} />
  </Stack>
);

/** What was chosen in the tables, each with a button that removes it. */
function Chosen({ choice }: { choice: Choice }): ReactNode {
  const { data } = useInfiniteQuery(spendingQuery("agent", choice.range));
  const agents = data?.pages.flatMap(({ items }) => items) ?? [];
  const agent = agents.find(({ key }) => key === choice.agentId.value);
  const { payee, site, task } = choice;
  const all = [
    { what: "agent", text: agent?.name ?? "chosen", ...choice.agentId },
    { what: "payee", text: `${payee.value.slice(0, 6)}…${payee.value.slice(-4)}`, ...payee },
    { what: "site", text: site.value.replace(/^https:\/\//, ""), ...site },
    { what: "task", text: task.value, ...task },
  ].filter(({ value }) => value !== "");
  if (all.length === 0) return null;
  return (
    <Group role="group" aria-label="Shown only">
      {all.map(({ what, text, set }) => (
        <Button
          key={what}
          onClick={() => {
            set("");
          }}
        >
          <span className={styles.chosenText}>
            Only {what} {text}
          </span>
          <span aria-hidden="true"> ×</span>
          <span className="sr-only">, remove</span>
        </Button>
      ))}
    </Group>
  );
}

function Saved({ choice }: { choice: Choice }): ReactNode {
  const { data } = useQuery(filtersQuery);
  const [chosen, setChosen] = useState("");
  const [isNaming, naming] = useDisclosure();
  const filters = data?.items ?? [];
  const remove = useMutation({
    mutationFn: () => removeFilter(chosen),
    onSuccess: () => {
      setChosen("");
    },
    onError: toastFailure("The filter was not removed"),
    onSettled: invalidate.afterFilter,
  });
  return (
    <>
      {filters.length > 0 && (
        <NativeSelect
          flex="1 1 150px"
          aria-label="Saved filters"
          value={chosen}
          data={[
            { value: "", label: "Saved filters" },
            ...filters.map(({ id, name }) => ({ value: id, label: name })),
          ]}
          onChange={({ currentTarget: { value } }) => {
            setChosen(value);
            const found = filters.find(({ id }) => id === value);
            if (found) choice.apply(found.filter);
          }}
        />
      )}
      <Button onClick={naming.open}>Save filter</Button>
      {chosen !== "" && (
        <MutationButton mutation={remove} pending="Removing…">
          Remove<span className="sr-only"> this saved filter</span>
        </MutationButton>
      )}
      {isNaming && <NameFilter choice={choice} onClose={naming.close} />}
    </>
  );
}

function NameFilter({ choice, onClose }: { choice: Choice; onClose: () => void }): ReactNode {
  const [name, setName] = useInputState("");
  const save = useMutation({
    mutationFn: () => saveFilter(name.trim(), choice.toSave()),
    onSuccess: onClose,
    onSettled: invalidate.afterFilter,
  });
  return (
    <Dialog opened onClose={onClose} title="Save this filter">
      <RequestForm
        mutation={save}
        failed="The filter was not saved"
        confirm="Save"
        pending="Saving…"
        disabled={name.trim() === ""}
        onCancel={onClose}
      >
        <TextInput
          label="Name"
          description="On all your devices. A filter with the same name is replaced."
          maxLength={60}
          data-autofocus
          value={name}
          onChange={setName}
        />
      </RequestForm>
    </Dialog>
  );
}

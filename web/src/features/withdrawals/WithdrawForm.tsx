import { Button, Group, NativeSelect, Stack, Text } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { flushSync } from "react-dom";
import { AmountInput } from "../../components/AmountInput.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { mayHold, placesOf } from "../../lib/balances.ts";
import { formatUsdc } from "../../lib/money.ts";
import type { Agent } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { checkDraft, type DraftErrors, EMPTY_DRAFT, type WithdrawalDraft } from "./draft.ts";
import { TargetFields } from "./TargetFields.tsx";
import type { Withdrawal } from "./use-withdrawal.ts";

interface WithdrawFormProps {
  agent: Agent;
  owner: string;
  withdrawal: Withdrawal;
  elsewhere: ReactNode;
}

/** The amount, and the target. */
export function WithdrawForm(props: WithdrawFormProps): ReactNode {
  const { agent, owner, withdrawal, elsewhere } = props;
  const { state, prepare } = withdrawal;
  const nameOf = useNetworkNames();
  const places = placesOf(agent);
  const [draft, setDraft] = useState<WithdrawalDraft>(() => ({
    ...EMPTY_DRAFT,
    // A network with a balance, the agent's own network first.
    network: (places.find(mayHold) ?? { network: agent.network }).network,
  }));
  const [errors, setErrors] = useState<DraftErrors>({});
  const chosen = places.find(({ network }) => network === draft.network);
  const balance = chosen === undefined ? null : chosen.balance;
  const isEmpty = !places.some(mayHold);
  const change = (next: Partial<WithdrawalDraft>): void => {
    setDraft({ ...draft, ...next });
    setErrors({});
  };
  const onSubmit = async (event: React.FormEvent): Promise<void> => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const check = await checkDraft(draft, agent);
    // Drawn at once, so that the first wrong field can be focused.
    flushSync(() => {
      setErrors(check.ok ? {} : check.errors);
    });
    form.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
    if (check.ok && state.step === "form")
      await prepare({ amount: check.amount, to: check.to, network: draft.network });
  };
  const max = (
    <Button
      size="xs"
      variant="subtle"
      aria-pressed={draft.isMax}
      onClick={() => {
        change({ isMax: !draft.isMax });
      }}
    >
      Max
    </Button>
  );
  return (
    <form noValidate onSubmit={(event) => void onSubmit(event)}>
      <Stack maw={520}>
        {places.length > 1 && (
          <NativeSelect
            label="Network"
            value={draft.network}
            onChange={(event) => {
              change({ network: event.currentTarget.value });
            }}
            data={places.map((place) => ({
              value: place.network,
              label: `${nameOf(place.network)}: ${place.balance === null ? "cannot be read" : `${formatUsdc(place.balance)} USDC`}`,
            }))}
          />
        )}
        <p>
          Available <Money amount={balance} />{" "}
          <Text span c="dimmed" size="sm">
            without signed withdrawals and payments that are still pending
          </Text>
        </p>
        {elsewhere}
        {isEmpty && <Note>The agent has no balance to withdraw.</Note>}
        <AmountInput
          label="Amount in USDC"
          required
          value={draft.isMax ? "" : draft.amount}
          placeholder={draft.isMax ? "Everything available" : "0.00"}
          error={errors.amount}
          onChange={(amount) => {
            change({ amount, isMax: false });
          }}
          rightSection={max}
          rightSectionWidth={64}
          rightSectionPointerEvents="all"
        />
        <TargetFields owner={owner} draft={draft} errors={errors} onChange={change} />
        {state.step === "form" && state.error !== undefined && (
          <ErrorNotice title="The withdrawal could not be prepared" error={state.error} />
        )}
        <Group>
          <PendingButton
            type="submit"
            variant="filled"
            disabled={isEmpty}
            pending={state.step === "preparing" && "Preparing…"}
          >
            Review withdrawal
          </PendingButton>
        </Group>
      </Stack>
    </form>
  );
}

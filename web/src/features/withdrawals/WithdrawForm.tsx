import { type ReactNode, useState } from "react";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Note, Row, Stack } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { Select } from "../../components/Select.tsx";
import { mayHold, placesOf } from "../../lib/balances.ts";
import { formatUsdc } from "../../lib/money.ts";
import type { Agent } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { checkDraft, type DraftErrors, EMPTY_DRAFT, type WithdrawalDraft } from "./draft.ts";
import { TargetFields } from "./TargetFields.tsx";
import type { Withdrawal } from "./use-withdrawal.ts";
import styles from "./Withdraw.module.css";

interface WithdrawFormProps {
  agent: Agent;
  owner: string;
  withdrawal: Withdrawal;
}

/** The amount, and the target. */
export function WithdrawForm({ agent, owner, withdrawal }: WithdrawFormProps): ReactNode {
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
    const check = await checkDraft(draft, agent);
    setErrors(check.ok ? {} : check.errors);
    if (check.ok && state.step === "form")
      await prepare({ amount: check.amount, to: check.to, network: draft.network });
  };
  const max = (
    <Button
      size="small"
      variant="ghost"
      aria-pressed={draft.isMax}
      onClick={() => {
        change({ isMax: !draft.isMax });
      }}
    >
      Max
    </Button>
  );
  return (
    <form className={styles.form} noValidate onSubmit={(event) => void onSubmit(event)}>
      <Stack gap={4}>
        {places.length > 1 && (
          <Select
            label="Network"
            value={draft.network}
            onChange={(network) => {
              change({ network });
            }}
            options={places.map((place) => ({
              value: place.network,
              label: `${nameOf(place.network)}: ${place.balance === null ? "cannot be read" : `${formatUsdc(place.balance)} USDC`}`,
            }))}
          />
        )}
        <p>
          Available <Money amount={balance} />{" "}
          <Muted>without signed withdrawals and payments that are still pending</Muted>
        </p>
        {isEmpty && <Note>The agent has no balance to withdraw.</Note>}
        <AmountInput
          label="Amount"
          required
          value={draft.isMax ? "" : draft.amount}
          placeholder={draft.isMax ? "Everything available" : "0.00"}
          error={errors.amount}
          onChange={(amount) => {
            change({ amount, isMax: false });
          }}
          rightSection={max}
        />
        <TargetFields owner={owner} draft={draft} errors={errors} onChange={change} />
        {state.step === "form" && state.error !== undefined && (
          <ErrorNotice title="The withdrawal could not be prepared" error={state.error} />
        )}
        <Row>
          <Button
            type="submit"
            variant="primary"
            disabled={isEmpty}
            pending={state.step === "preparing" && "Preparing…"}
          >
            Review withdrawal
          </Button>
        </Row>
      </Stack>
    </form>
  );
}

import { type ReactNode, useState } from "react";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Note, Row, Stack } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { atomic } from "../../lib/money.ts";
import type { Agent } from "../../lib/wire.ts";
import { checkDraft, type DraftErrors, EMPTY_DRAFT, type WithdrawalDraft } from "./draft.ts";
import { TargetFields } from "./TargetFields.tsx";
import type { Withdrawal } from "./use-withdrawal.ts";
import styles from "./Withdraw.module.css";

interface WithdrawFormProps {
  agent: Agent;
  owner: string;
  withdrawal: Withdrawal;
}

/** How much, and where to. */
export function WithdrawForm({ agent, owner, withdrawal }: WithdrawFormProps): ReactNode {
  const { state, prepare } = withdrawal;
  const [draft, setDraft] = useState<WithdrawalDraft>(EMPTY_DRAFT);
  const [errors, setErrors] = useState<DraftErrors>({});
  const isEmpty = agent.balance !== null && atomic(agent.balance) === 0n;
  const change = (next: Partial<WithdrawalDraft>): void => {
    setDraft({ ...draft, ...next });
    setErrors({});
  };
  const onSubmit = async (event: React.FormEvent): Promise<void> => {
    event.preventDefault();
    const check = await checkDraft(draft, agent);
    setErrors(check.ok ? {} : check.errors);
    if (check.ok && state.step === "form") await prepare(check.amount, check.to);
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
        <p>
          Available <Money amount={agent.balance} />{" "}
          <Muted>minus what is signed and still on its way</Muted>
        </p>
        {isEmpty && <Note>The agent holds nothing to withdraw.</Note>}
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

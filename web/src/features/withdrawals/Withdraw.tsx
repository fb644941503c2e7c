import { type ReactNode, useState } from "react";
import { TextInput } from "@mantine/core";
import { Address } from "../../components/Address.tsx";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Note, Row, Section, Stack } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { Segmented } from "../../components/Segmented.tsx";
import { checkAddress, isSameAddress } from "../../lib/address.ts";
import { atomic, formatUsdc, parseUsdc, toDecimal } from "../../lib/money.ts";
import type { Agent } from "../../lib/wire.ts";
import { useWithdrawal, type Withdrawal } from "./use-withdrawal.ts";
import styles from "./Withdraw.module.css";
import { WithdrawalReview } from "./WithdrawalReview.tsx";

const CONFIRM_LENGTH = 6;

export function Withdraw({ agent, owner }: { agent: Agent; owner: string }): ReactNode {
  const withdrawal = useWithdrawal(agent.id);
  const { state } = withdrawal;
  const isForm = state.step === "form" || state.step === "preparing";
  return (
    <Section
      title="Withdraw"
      hint="Only your wallet's signature takes money out. It works while the agent is paused, expired or at its limit, and counts against no limit."
    >
      {/* Kept mounted, so that "Back" finds the form as it was left. */}
      <div hidden={!isForm}>
        <WithdrawForm agent={agent} owner={owner} withdrawal={withdrawal} />
      </div>
      {state.step !== "form" && state.step !== "preparing" && (
        <WithdrawalReview agent={agent} owner={owner} withdrawal={withdrawal} state={state} />
      )}
    </Section>
  );
}

function WithdrawForm({
  agent,
  owner,
  withdrawal,
}: {
  agent: Agent;
  owner: string;
  withdrawal: Withdrawal;
}): ReactNode {
  const { state, prepare } = withdrawal;
  const [amount, setAmount] = useState("");
  const [isMax, setMax] = useState(false);
  const [target, setTarget] = useState<"owner" | "other">("owner");
  const [to, setTo] = useState("");
  const [confirmation, setConfirmation] = useState("");
  const [errors, setErrors] = useState<{ amount?: string; to?: string; confirmation?: string }>({});
  const isEmpty = agent.balance !== null && atomic(agent.balance) === 0n;

  const check = async (): Promise<{ amount: string; to: string | undefined } | undefined> => {
    const next: typeof errors = {};
    const value = parseUsdc(amount);
    if (!isMax && (value === undefined || value === 0n))
      next.amount = "An amount such as 5 or 0.25, with at most 6 decimals.";
    else if (
      !isMax &&
      value !== undefined &&
      agent.balance !== null &&
      value > atomic(agent.balance)
    )
      next.amount = `The agent holds ${formatUsdc(agent.balance)} USDC.`;
    let address: string | undefined;
    if (target === "other") {
      const checked = await checkAddress(to);
      if (!checked.ok) next.to = checked.reason;
      else if (isSameAddress(checked.address, agent.walletAddress))
        next.to = "This is the agent's own address.";
      else {
        address = checked.address;
        const ending = address.slice(-CONFIRM_LENGTH);
        if (confirmation.trim().toLowerCase() !== ending.toLowerCase())
          next.confirmation = `Type the last ${CONFIRM_LENGTH} characters of the address: they must match.`;
      }
    }
    setErrors(next);
    if (Object.keys(next).length > 0) return undefined;
    return { amount: isMax || value === undefined ? "max" : toDecimal(value), to: address };
  };
  const onSubmit = async (event: React.FormEvent): Promise<void> => {
    event.preventDefault();
    const request = await check();
    if (request && state.step === "form") await prepare(request.amount, request.to);
  };

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
          value={isMax ? "" : amount}
          placeholder={isMax ? "Everything available" : "0.00"}
          error={errors.amount}
          onChange={(next) => {
            setMax(false);
            setAmount(next);
            setErrors({});
          }}
          rightSection={
            <Button
              size="small"
              variant="ghost"
              aria-pressed={isMax}
              onClick={() => {
                setMax(!isMax);
                setErrors({});
              }}
            >
              Max
            </Button>
          }
        />
        <div>
          <Segmented
            label="Where to"
            value={target}
            onChange={(next) => {
              setTarget(next);
              setErrors({});
            }}
            options={[
              { value: "owner", label: "To my wallet" },
              { value: "other", label: "Another address" },
            ]}
          />
        </div>
        {target === "owner" ? (
          <p>
            <Muted>Goes to</Muted> <Address value={owner} copy={false} />
          </p>
        ) : (
          <Stack gap={3}>
            <TextInput
              label="Address"
              placeholder="0x…"
              spellCheck={false}
              autoComplete="off"
              value={to}
              error={errors.to}
              onChange={(event) => {
                setTo(event.currentTarget.value);
                setErrors({});
              }}
            />
            <TextInput
              label="Type its last 6 characters"
              description="Read them where you have the address from, not from the field above. A transfer cannot be called back."
              spellCheck={false}
              autoComplete="off"
              value={confirmation}
              error={errors.confirmation}
              onChange={(event) => {
                setConfirmation(event.currentTarget.value);
                setErrors({});
              }}
            />
          </Stack>
        )}
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

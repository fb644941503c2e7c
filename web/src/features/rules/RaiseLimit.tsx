import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Row, Stack } from "../../components/Layout.tsx";
import { atomic, formatUsdc, parseUsdc, toDecimal } from "../../lib/money.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent, Payment } from "../../lib/wire.ts";
import { changeRules } from "./api.ts";

/** Offers the limit at which this payment would have passed. */
export function RaiseLimit({ agent, payment }: { agent: Agent; payment: Payment }): ReactNode {
  const isDaily = payment.denial?.code === "daily_limit_exceeded";
  const now = atomic(isDaily ? agent.dailyLimit : (agent.perPaymentLimit ?? agent.dailyLimit));
  const used = isDaily ? atomic(agent.limits.spent) + atomic(agent.limits.reserved) : 0n;
  const needed = used + atomic(payment.amount);
  // Until it is edited it follows the agent, whose spending may go on meanwhile.
  const [edited, setAmount] = useState<string>();
  const amount = edited ?? toDecimal(needed);
  const [error, setError] = useState<string>();
  const raise = useMutation({
    mutationFn: (limit: string) =>
      changeRules(agent, isDaily ? { dailyLimit: limit } : { perPaymentLimit: limit }, {
        title: "Raise the limit",
      }),
    onSuccess: () => {
      notifications.show({
        message: isDaily ? "The daily limit is raised." : "The limit per payment is raised.",
      });
    },
    onSettled: invalidate.afterRules,
  });
  if (needed <= now)
    return <p role="status">The amount fits the limit now. The agent may try again.</p>;
  const onSubmit = (event: React.FormEvent): void => {
    event.preventDefault();
    const limit = parseUsdc(amount);
    if (limit === undefined || limit <= now)
      setError(`More than the ${formatUsdc(now)} USDC of now.`);
    else if (!raise.isPending) raise.mutate(toDecimal(limit));
  };
  return (
    <form onSubmit={onSubmit} noValidate>
      <Stack gap={3}>
        <AmountInput
          label={isDaily ? "New daily limit" : "New limit per payment"}
          description={`Now ${formatUsdc(now)}. At least ${formatUsdc(needed)} lets this payment through.`}
          value={amount}
          error={error}
          onChange={(next) => {
            setAmount(next);
            setError(undefined);
          }}
        />
        {raise.error && <ErrorNotice error={raise.error} />}
        <Row>
          <Button
            type="submit"
            variant="primary"
            size="small"
            pending={raise.isPending && "Raising…"}
          >
            Raise limit
          </Button>
        </Row>
      </Stack>
    </form>
  );
}

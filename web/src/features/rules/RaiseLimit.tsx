import { Group, Stack } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { AmountInput } from "../../components/AmountInput.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { formatUsdc, parseUsdc, toDecimal } from "../../lib/money.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent, Payment } from "../../lib/wire.ts";
import { limitBehind } from "./limit-behind.ts";

/** Offers the limit at which this payment would be allowed. */
export function RaiseLimit({ agent, payment }: { agent: Agent; payment: Payment }): ReactNode {
  const limit = limitBehind(agent, payment);
  // Until it is edited, the amount follows the agent, whose spending may change meanwhile.
  const [edited, setAmount] = useState<string>();
  const [error, setError] = useState<string>();
  const raise = useMutation({
    mutationFn: (to: string) => limit?.raise(to) ?? Promise.resolve(),
    onSuccess: () => {
      notifications.show({ message: `The ${limit?.name ?? "limit"} is raised.` });
    },
    onSettled: invalidate.afterRules,
  });
  if (!limit || limit.now === null || limit.needed <= limit.now)
    return <p role="status">The amount now fits the limit. The agent can try again.</p>;
  const { now, needed, name } = limit;
  const amount = edited ?? toDecimal(needed);
  const onSubmit = (event: React.FormEvent): void => {
    event.preventDefault();
    const wanted = parseUsdc(amount);
    if (wanted === undefined || wanted <= now)
      setError(`Enter more than the current ${formatUsdc(now)} USDC.`);
    else if (!raise.isPending) raise.mutate(toDecimal(wanted));
  };
  return (
    <form onSubmit={onSubmit} noValidate>
      <Stack gap="sm">
        <AmountInput
          label={`New ${name}`}
          description={`The limit is ${formatUsdc(now)}. This payment needs at least ${formatUsdc(needed)}. You sign the change.`}
          value={amount}
          error={error}
          onChange={(next) => {
            setAmount(next);
            setError(undefined);
          }}
        />
        {raise.error && <ErrorNotice error={raise.error} />}
        <Group>
          <PendingButton
            type="submit"
            variant="filled"
            size="xs"
            pending={raise.isPending && "Raising…"}
          >
            Raise limit
          </PendingButton>
        </Group>
      </Stack>
    </form>
  );
}

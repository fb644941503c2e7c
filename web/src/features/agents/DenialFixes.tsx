import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Button, LinkButton } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Row, Stack } from "../../components/Layout.tsx";
import { isSameAddress } from "../../lib/address.ts";
import { atomic, formatUsdc, parseUsdc, toDecimal } from "../../lib/money.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent, Payment } from "../../lib/wire.ts";
import { allowPayee, updateAgent } from "./api.ts";

/** From a refused payment straight to the rule that refused it. */
export function DenialFixes({ agent, payment }: { agent: Agent; payment: Payment }): ReactNode {
  switch (payment.denial?.code) {
    case "recipient_not_allowed":
      return <AllowPayee agent={agent} payment={payment} />;
    case "daily_limit_exceeded":
    case "per_payment_limit_exceeded":
      return <RaiseLimit agent={agent} payment={payment} />;
    case "agent_paused":
    case "agent_expired":
      return (
        <Row>
          <LinkButton to={`/agents/${agent.id}/rules`} size="small">
            Open the rules
          </LinkButton>
        </Row>
      );
    default:
      return null;
  }
}

function useFix<T>(mutationFn: (input: T) => Promise<unknown>, done: string) {
  return useMutation({
    mutationFn,
    onSuccess: () => {
      notifications.show({ message: done });
    },
    onSettled: invalidate.afterRules,
  });
}

const hostOf = (url: string | null | undefined): string =>
  url && URL.canParse(url) ? new URL(url).host : "";

function AllowPayee({ agent, payment }: { agent: Agent; payment: Payment }): ReactNode {
  const payee = payment.recipient;
  const fix = useFix(
    (address: string) => allowPayee(agent.id, address, hostOf(payment.x402?.url)),
    "The payee is allowed from now on.",
  );
  if (payee === null) return null;
  if (agent.allowlist.some((entry) => isSameAddress(entry.address, payee)))
    return <p role="status">This payee is allowed now. The agent may try again.</p>;
  return (
    <Stack gap={3}>
      {fix.error && <ErrorNotice error={fix.error} />}
      <Row>
        <Button
          variant="primary"
          size="small"
          pending={fix.isPending && "Allowing…"}
          onClick={() => {
            fix.mutate(payee);
          }}
        >
          Allow this payee
        </Button>
      </Row>
    </Stack>
  );
}

function RaiseLimit({ agent, payment }: { agent: Agent; payment: Payment }): ReactNode {
  const isDaily = payment.denial?.code === "daily_limit_exceeded";
  const now = atomic(isDaily ? agent.dailyLimit : (agent.perPaymentLimit ?? agent.dailyLimit));
  const used = isDaily ? atomic(agent.limits.spent) + atomic(agent.limits.reserved) : 0n;
  const needed = used + atomic(payment.amount);
  // Until it is edited it follows the agent, whose spending may go on meanwhile.
  const [edited, setAmount] = useState<string>();
  const amount = edited ?? toDecimal(needed);
  const [error, setError] = useState<string>();
  const fix = useFix(
    (limit: string) =>
      updateAgent(agent.id, isDaily ? { dailyLimit: limit } : { perPaymentLimit: limit }),
    isDaily ? "The daily limit is raised." : "The limit per payment is raised.",
  );
  if (needed <= now)
    return <p role="status">The amount fits the limit now. The agent may try again.</p>;
  const onSubmit = (event: React.FormEvent): void => {
    event.preventDefault();
    const limit = parseUsdc(amount);
    if (limit === undefined || limit <= now)
      setError(`More than the ${formatUsdc(now)} USDC of now.`);
    else if (!fix.isPending) fix.mutate(toDecimal(limit));
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
        {fix.error && <ErrorNotice error={fix.error} />}
        <Row>
          <Button
            type="submit"
            variant="primary"
            size="small"
            pending={fix.isPending && "Raising…"}
          >
            Raise limit
          </Button>
        </Row>
      </Stack>
    </form>
  );
}

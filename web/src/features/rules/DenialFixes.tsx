import { Button, Group } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import type { Agent, Payment } from "../../lib/wire.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { AllowChannels } from "./AllowChannels.tsx";
import { AllowPayee } from "./AllowPayee.tsx";
import { RaiseLimit } from "./RaiseLimit.tsx";
import { entryFor } from "./rules.ts";
import { SignNewPayee } from "./SignNewPayee.tsx";

interface FixProps {
  agent: Agent;
  payment: Payment;
}

/** Links a refused payment to a change of the rule that refused it. */
export const DenialFixes = (props: FixProps): ReactNode => (
  <OwnerOnly>
    <Fix {...props} />
  </OwnerOnly>
);

function Fix({ agent, payment }: FixProps): ReactNode {
  switch (payment.denial?.code) {
    case "recipient_not_allowed":
      return <AllowRecipient agent={agent} payment={payment} />;
    case "site_payee_changed":
      return <SignNewPayee agent={agent} payment={payment} />;
    case "daily_limit_exceeded":
    case "weekly_limit_exceeded":
    case "monthly_limit_exceeded":
    case "per_payment_limit_exceeded":
    case "payee_limit_exceeded":
    case "payee_per_payment_limit_exceeded":
      return <RaiseLimit agent={agent} payment={payment} />;
    case "channel_not_allowed":
    case "channel_limit_exceeded":
    case "payee_channel_limit_exceeded":
      return <AllowChannels agent={agent} payment={payment} />;
    case "budget_exceeded":
      return (
        <Group>
          <Button component={Link} to="/budgets" size="xs">
            Open the budgets
          </Button>
        </Group>
      );
    case "agent_paused":
    case "paused_by_rule":
    case "outside_pay_times":
    case "agent_expired":
    case "payee_expired":
    case "payment_rate_exceeded":
    case "payee_bound_to_site":
    case "origin_not_allowed":
      return (
        <Group>
          <Button component={Link} to={`/agents/${agent.id}/rules`} size="xs">
            Open the rules
          </Button>
        </Group>
      );
    default:
      return null;
  }
}

const hostOf = (url: string | null | undefined): string =>
  url && URL.canParse(url) ? new URL(url).host : "";

function AllowRecipient({ agent, payment }: FixProps): ReactNode {
  const address = payment.recipient;
  if (address === null) return null;
  if (entryFor(agent, payment))
    return <p role="status">This payee is now allowed. The agent can try again.</p>;
  return (
    <AllowPayee
      agent={agent}
      payee={{ address, label: hostOf(payment.x402?.url) }}
      variant="filled"
    >
      Allow this payee
    </AllowPayee>
  );
}

import { Button, Group } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { denialOf } from "../../../../packages/rules/src/denials.ts";
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
  switch (denialOf(payment.denial?.code)?.fix) {
    case "payee":
      return <AllowRecipient agent={agent} payment={payment} />;
    case "new payee":
      return <SignNewPayee agent={agent} payment={payment} />;
    case "limit":
      return <RaiseLimit agent={agent} payment={payment} />;
    case "channels":
      return <AllowChannels agent={agent} payment={payment} />;
    case "denied payees":
      return <OpenPage to="/settings">Open the denied payees</OpenPage>;
    case "budget":
      return <OpenPage to="/budgets">Open the budgets</OpenPage>;
    case "rules":
      return <OpenPage to={`/agents/${agent.id}/rules`}>Open the rules</OpenPage>;
    default:
      return null;
  }
}

const OpenPage = ({ to, children }: { to: string; children: ReactNode }): ReactNode => (
  <Group>
    <Button component={Link} to={to} size="xs">
      {children}
    </Button>
  </Group>
);

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

import { Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { KeyValues } from "../../components/Layout.tsx";
import { isSamePayee } from "../../lib/orders/terms.ts";
import type { Agent, Payment } from "../../lib/wire.ts";
import { AllowPayee } from "./AllowPayee.tsx";

/**
 * For a site that requests payment to a different address: shows both addresses in full before the new one is
 * signed in place of the old.
 */
export function SignNewPayee({ agent, payment }: { agent: Agent; payment: Payment }): ReactNode {
  const { site, expectedPayee, seenPayee } = payment.denial ?? {};
  if (!site || !expectedPayee || !seenPayee) return null;
  const listed = (address: string) =>
    agent.allowlist.find((entry) => isSamePayee(entry, { address, site }));
  const old = listed(expectedPayee);
  if (listed(seenPayee))
    return <p role="status">The new address is now allowed. The agent can try again.</p>;
  return (
    <Stack gap="sm">
      <KeyValues
        rows={[
          ["Site", <code key="site">{site}</code>],
          ["You allowed", <Address key="old" value={expectedPayee} full />],
          ["It now requests", <Address key="new" value={seenPayee} full />],
        ]}
      />
      <p>
        A seller may have changed its address, or an attacker may have changed the site. If you are
        not sure, contact the seller in another way.
      </p>
      <AllowPayee
        agent={agent}
        payee={{ address: seenPayee, site, label: old?.label ?? "", replaces: expectedPayee }}
        variant="filled"
      >
        Sign the new address
      </AllowPayee>
    </Stack>
  );
}

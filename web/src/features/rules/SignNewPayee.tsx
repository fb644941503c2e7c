import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Stack } from "../../components/Layout.tsx";
import { isSamePayee } from "../../lib/orders/terms.ts";
import type { Agent, Payment } from "../../lib/wire.ts";
import { AllowPayee } from "./AllowPayee.tsx";
import styles from "./Site.module.css";

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
    <Stack gap={3}>
      <dl className={styles.facts}>
        <dt>Site</dt>
        <dd className={styles.site}>{site}</dd>
        <dt>You allowed</dt>
        <dd>
          <Address value={expectedPayee} full />
        </dd>
        <dt>It now requests</dt>
        <dd>
          <Address value={seenPayee} full />
        </dd>
      </dl>
      <p>
        A seller may have changed its address, or an attacker may have changed the site. If you are
        not sure, contact the seller in another way.
      </p>
      <AllowPayee
        agent={agent}
        payee={{ address: seenPayee, site, label: old?.label ?? "", replaces: expectedPayee }}
        variant="primary"
      >
        Sign the new address
      </AllowPayee>
    </Stack>
  );
}

import type { ReactNode } from "react";
import { Muted, Section, Stack } from "../../components/Layout.tsx";
import { Meter } from "../../components/Meter.tsx";
import { Money } from "../../components/Money.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { atomic } from "../../lib/money.ts";
import { plural } from "../../lib/plural.ts";
import type { Agent } from "../../lib/wire.ts";
import styles from "./LimitCard.module.css";

/** What the rules leave to spend now, and the rules in short. */
export function LimitCard({ agent }: { agent: Agent }): ReactNode {
  const { limits, allowlist } = agent;
  return (
    <Section title="Limit">
      <Stack gap={4}>
        <div>
          <p>
            <Muted>Can still spend now</Muted>
          </p>
          <Money amount={limits.remaining} size="large" />
        </div>
        <Meter limits={limits} />
        <ul className={styles.facts}>
          <li>
            {limits.nextReleaseAt === null ? (
              atomic(limits.spent) > 0n ? (
                "No release known"
              ) : (
                "Nothing counts against the limit"
              )
            ) : (
              <>
                Next amount is free again <TimeUntil iso={limits.nextReleaseAt} />
              </>
            )}
          </li>
          <li>
            {agent.perPaymentLimit === null ? (
              "No limit per payment"
            ) : (
              <>
                At most <Money amount={agent.perPaymentLimit} /> per payment
              </>
            )}
          </li>
          <li>
            {allowlist.length === 0
              ? "Nobody may be paid yet"
              : `${plural(allowlist.length, "payee")} allowed`}
          </li>
          {agent.expiresAt !== null && (
            <li>
              {agent.expired ? (
                <>
                  Expired <TimeAgo iso={agent.expiresAt} />
                </>
              ) : (
                <>
                  Expires <TimeUntil iso={agent.expiresAt} />
                </>
              )}
            </li>
          )}
        </ul>
      </Stack>
    </Section>
  );
}

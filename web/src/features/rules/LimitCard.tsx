import { Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { AGENT_FIELDS } from "../../../../packages/rules/src/fields.ts";
import { Section } from "../../components/Layout.tsx";
import { Meter } from "../../components/Meter.tsx";
import { Money } from "../../components/Money.tsx";
import { TimeAgo, TimeUntil } from "../../components/RelativeTime.tsx";
import { limitingRule } from "../../lib/available.ts";
import { atomic, toDecimal } from "../../lib/money.ts";
import { plural } from "../../lib/plural.ts";
import type { Agent } from "../../lib/wire.ts";
import styles from "./LimitCard.module.css";
import { describeSettings } from "./rules.ts";

const PERIODS: Readonly<Record<string, string>> = {
  "24h": "24 h",
  "7d": "7 days",
  "30d": "30 days",
};

/** The settings with a meter or a line of their own. */
const SHOWN = [
  ...AGENT_FIELDS.filter(({ window }) => window !== undefined).map(({ name }) => name),
  "perPaymentLimit",
  "expiresAt",
];

/** The amount that can be paid now, the limit that caps it, and a summary of the rules. */
export function LimitCard({ agent }: { agent: Agent }): ReactNode {
  const { limits, allowlist } = agent;
  // Shows the window of the limit that caps payments.
  const window =
    (limits.boundBy === "weekly_limit" && limits.weekly) ||
    (limits.boundBy === "monthly_limit" && limits.monthly) ||
    limits;
  return (
    <Section title="Limit">
      <Stack>
        <div>
          <Text c="dimmed" size="sm">
            Can pay now
          </Text>
          <Money amount={limits.available} size="large" />
          <Text c="dimmed" size="sm" className={styles.reason}>
            {limitingRule(agent)}
          </Text>
        </div>
        <Meter limits={limits} />
        {limits.weekly && <Meter limits={limits.weekly} period="7 days" />}
        {limits.monthly && <Meter limits={limits.monthly} period="30 days" />}
        {limits.budgets.map(({ id, name, window: hours, limit, available }) => (
          <Meter
            key={`${id} ${hours}`}
            limits={{ limit, spent: toDecimal(atomic(limit) - atomic(available)), reserved: "0" }}
            period={`${PERIODS[hours] ?? hours}, all agents of ${name}`}
          />
        ))}
        <ul className={styles.facts}>
          <li>
            <TimeUntil
              label="The limit starts to free up"
              iso={window.nextReleaseAt}
              none={
                atomic(window.spent) > 0n ? "No time known" : "Nothing counts against the limit"
              }
            />
          </li>
          {limits.hourly && (
            <li>
              {limits.hourly.spent + limits.hourly.reserved} of{" "}
              {plural(limits.hourly.limit, "payment")} in the last hour
            </li>
          )}
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
              ? "No payees allowed yet"
              : `${plural(allowlist.length, "payee")} allowed`}
          </li>
          {describeSettings(agent, SHOWN).map((sentence) => (
            <li key={sentence}>{sentence.replace(/\.$/, "")}</li>
          ))}
          {agent.expiresAt !== null && (
            <li>
              {agent.expired ? (
                <TimeAgo label="Expired" iso={agent.expiresAt} />
              ) : (
                <TimeUntil label="Expires" iso={agent.expiresAt} />
              )}
            </li>
          )}
        </ul>
      </Stack>
    </Section>
  );
}

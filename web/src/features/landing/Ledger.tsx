import { Paper, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { BlockIcon, CheckIcon } from "../../components/icons.tsx";
import { Meter } from "../../components/Meter.tsx";
import { Money } from "../../components/Money.tsx";
import styles from "./Ledger.module.css";

const ROWS = [
  { what: "Weather data, one call", amount: "0.02", paid: true },
  { what: "Company report", amount: "1.50", paid: true },
  { what: "Image set, 40 pictures", amount: "2.60", paid: true },
  { what: "Premium dataset", amount: "3.00", paid: false },
] as const;

const LIMITS = {
  limit: "5.00",
  spent: "4.12",
  reserved: "0",
  remaining: "0.88",
  nextReleaseAt: null,
};

/** An example day of an agent, labelled as an example. */
export function Ledger(): ReactNode {
  return (
    <Paper
      component="figure"
      p="lg"
      shadow="var(--shadow)"
      aria-label="Example: one day of an agent with a limit of 5 USDC"
    >
      <Stack>
        <figcaption className={styles.head}>
          <span>research-agent</span>
          <Text c="dimmed" size="xs" fw={500}>
            Example
          </Text>
        </figcaption>
        <Meter limits={LIMITS} />
        <ul>
          {ROWS.map((row) => (
            <li key={row.what} className={row.paid ? styles.row : styles.blocked}>
              {row.paid ? <CheckIcon size={16} /> : <BlockIcon size={16} />}
              <span>
                {row.what}
                {!row.paid && <small>Blocked: daily limit. Fits again in 3 hours.</small>}
              </span>
              <span className={styles.amount}>
                <Money amount={row.amount} />
              </span>
            </li>
          ))}
        </ul>
      </Stack>
    </Paper>
  );
}

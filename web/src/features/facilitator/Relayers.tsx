import { Badge, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { AlertIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";
import type { FacilitatorStats } from "../../lib/wire.ts";
import { findNetwork, useExplorer, useInfo } from "../../shared/info.ts";
import styles from "./Facilitator.module.css";

/** Gas has 18 decimals; four are enough to see whether it lasts. Truncated, not rounded up. */
const shortGas = (balance: string): string => {
  const [whole = "0", fraction = ""] = balance.split(".");
  const cut = fraction.slice(0, 4).replace(/0+$/, "");
  return `${whole.replaceAll(/\B(?=(\d{3})+$)/g, ",")}${cut === "" ? "" : `.${cut}`}`;
};

export function Relayers({ stats }: { stats: FacilitatorStats }): ReactNode {
  const info = useInfo();
  const explorer = useExplorer();
  return (
    <Section flush title="Relayers" hint="These accounts send the transactions and pay the gas.">
      <ul>
        {stats.relayers.map((relayer) => (
          <li key={`${relayer.network}${relayer.address}`} className={`list-row ${styles.relayer}`}>
            <Address value={relayer.address} explorerUrl={explorer} />
            <Text span c="dimmed" size="sm">
              {findNetwork(info, relayer.network)?.name ?? relayer.network}
            </Text>
            <span className={styles.amount} title={relayer.gasBalance ?? undefined}>
              {relayer.gasBalance === null
                ? "cannot be read"
                : `${shortGas(relayer.gasBalance)} ${relayer.gasSymbol}`}
            </span>
            {relayer.low ? (
              <Badge color="red" leftSection={<AlertIcon size={12} />}>
                Low on gas
              </Badge>
            ) : (
              <Badge color="green">Funded</Badge>
            )}
          </li>
        ))}
      </ul>
    </Section>
  );
}

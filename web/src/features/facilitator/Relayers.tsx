import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Badge } from "../../components/Badge.tsx";
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
          <li key={`${relayer.network}${relayer.address}`} className={styles.relayer}>
            <Address value={relayer.address} explorerUrl={explorer} />
            <span className={styles.time}>
              {findNetwork(info, relayer.network)?.name ?? relayer.network}
            </span>
            <span className={styles.amount} title={relayer.gasBalance ?? undefined}>
              {relayer.gasBalance === null
                ? "cannot be read"
                : `${shortGas(relayer.gasBalance)} ${relayer.gasSymbol}`}
            </span>
            {relayer.low ? (
              <Badge tone="bad" icon={<AlertIcon size={12} />}>
                Low on gas
              </Badge>
            ) : (
              <Badge tone="ok">Funded</Badge>
            )}
          </li>
        ))}
      </ul>
    </Section>
  );
}

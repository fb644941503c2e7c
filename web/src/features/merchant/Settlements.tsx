import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useSearchParams } from "react-router";
import { Badge } from "../../components/Badge.tsx";
import { AnchorButton } from "../../components/Button.tsx";
import { EmptyState } from "../../components/EmptyState.tsx";
import { DownloadIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";
import { LoadMore } from "../../components/LoadMore.tsx";
import { Money } from "../../components/Money.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import rows from "../../components/Rows.module.css";
import { Skeleton } from "../../components/Skeleton.tsx";
import { shortAddress } from "../../lib/address.ts";
import { useChangeParameters } from "../../lib/use-parameter.ts";
import type { MerchantSettlement } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { csvHref, settlementsQuery } from "./api.ts";
import { Filters, useChoice } from "./Filters.tsx";
import styles from "./Merchant.module.css";
import { SettlementDrawer } from "./SettlementDrawer.tsx";
import { statusOf } from "./words.ts";

/** The list of settlements, filtered by the URL: back, reload and sharing keep it. */
export function Settlements(): ReactNode {
  const choice = useChoice();
  const { filter } = choice;
  const query = useInfiniteQuery(settlementsQuery(filter));
  const items = query.data?.pages.flatMap((page) => page.items) ?? [];
  const [parameters] = useSearchParams();
  const change = useChangeParameters();
  const openId = parameters.get("settlement");
  const isFiltered = Object.keys(filter).length > 0;
  return (
    <Section
      flush
      title="Settlements"
      hint="Payments to your wallet. Open one to refund it."
      actions={
        <AnchorButton href={csvHref(filter)}>
          <DownloadIcon size={16} />
          CSV
        </AnchorButton>
      }
    >
      <Filters choice={choice} />
      <QueryStatus query={query} what="settlements" failed="Settlements could not be loaded">
        <Skeleton shape="row" count={6} />
      </QueryStatus>
      {query.isSuccess && items.length === 0 && (
        <EmptyState title={isFiltered ? "No settlement matches" : "No settlements yet"}>
          {isFiltered
            ? "Change the filter."
            : "Set this facilitator in your API with this wallet as payTo. Payments then appear here."}
        </EmptyState>
      )}
      <ul>
        {items.map((settlement) => (
          <SettlementRow
            key={settlement.id}
            settlement={settlement}
            onOpen={() => {
              change((next) => {
                next.set("settlement", settlement.id);
              });
            }}
          />
        ))}
      </ul>
      <LoadMore query={query} what="settlements" />
      <SettlementDrawer
        id={openId}
        onClose={() => {
          change(
            (next) => {
              next.delete("settlement");
            },
            { replace: true },
          );
        }}
      />
    </Section>
  );
}

function SettlementRow({
  settlement,
  onOpen,
}: {
  settlement: MerchantSettlement;
  onOpen: () => void;
}): ReactNode {
  const status = statusOf(settlement);
  const nameOf = useNetworkNames();
  const isNothing = settlement.status === "failed" || settlement.status === "expired";
  return (
    <li className={styles.row}>
      <div className={rows.what}>
        <button type="button" className={rows.open} onClick={onOpen} aria-haspopup="dialog">
          {shortAddress(settlement.payer)}
        </button>
        <span className={rows.meta}>
          {nameOf(settlement.network)}
          {settlement.errorReason !== null && ` · ${settlement.errorReason.replaceAll("_", " ")}`}
        </span>
      </div>
      <span className={styles.status}>
        <Badge tone={status.tone}>{status.label}</Badge>
      </span>
      <span className={`${rows.meta} ${styles.time}`}>
        <TimeAgo iso={settlement.createdAt} />
      </span>
      <span className={isNothing ? styles.struck : styles.amount}>
        <Money amount={settlement.amount} />
      </span>
    </li>
  );
}

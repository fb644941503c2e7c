import { Badge, Button, EmptyState } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { DownloadIcon } from "../../components/icons.tsx";
import { Section } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { MoneyRow } from "../../components/MoneyRow.tsx";
import { shortAddress } from "../../lib/address.ts";
import { useOpenItem } from "../../lib/use-parameter.ts";
import type { MerchantSettlement } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { csvHref, settlementsQuery, type SettlementFilter } from "./api.ts";
import { Filters, useChoice } from "./Filters.tsx";
import { SettlementDrawer } from "./SettlementDrawer.tsx";
import { resourceLabel, statusOf } from "./words.ts";

/** The list of settlements, filtered by the URL: back, reload and sharing keep it. */
export function Settlements(): ReactNode {
  const choice = useChoice();
  const { filter } = choice;
  const query = useInfiniteQuery(settlementsQuery(filter));
  const { openId, open, close } = useOpenItem("settlement");
  const isFiltered = Object.keys(filter).length > 0;
  return (
    <Section
      flush
      title="Settlements"
      hint="Payments to your wallet. To refund a customer, paste the transaction hash and open the payment."
      actions={
        <Button component="a" href={csvHref(filter)}>
          <DownloadIcon size={16} />
          CSV
        </Button>
      }
    >
      <Filters choice={choice} />
      <List
        query={query}
        what="settlements"
        failed="Settlements could not be loaded"
        placeholders={6}
        empty={
          <EmptyState
            title={emptyTitle(filter)}
            description={
              isFiltered
                ? "Change the filter."
                : "Set this facilitator in your API with this wallet as payTo. Payments then appear here."
            }
          />
        }
      >
        {(settlement) => (
          <SettlementRow
            key={settlement.id}
            settlement={settlement}
            onOpen={() => {
              open(settlement.id);
            }}
          />
        )}
      </List>
      <SettlementDrawer id={openId} onClose={close} />
    </Section>
  );
}

function emptyTitle({ payment, ...others }: SettlementFilter): string {
  if (payment !== undefined)
    return `No payment to you with this ${payment.startsWith("0x") ? "hash" : "id"}`;
  return Object.keys(others).length > 0 ? "No settlement matches" : "No settlements yet";
}

function SettlementRow({
  settlement,
  onOpen,
}: {
  settlement: MerchantSettlement;
  onOpen: () => void;
}): ReactNode {
  const { status, errorReason, thirdParty } = settlement;
  const { color, label } = statusOf(settlement);
  const nameOf = useNetworkNames();
  const sold = resourceLabel(thirdParty);
  return (
    <MoneyRow
      title={shortAddress(settlement.payer)}
      meta={
        <>
          {sold !== undefined && `“${sold}”, as the payment names it · `}
          {nameOf(settlement.network)}
          {errorReason !== null && ` · ${errorReason.replaceAll("_", " ")}`}
        </>
      }
      badge={<Badge color={color}>{label}</Badge>}
      at={settlement.createdAt}
      amount={settlement.amount}
      isVoid={status === "failed" || status === "expired"}
      onOpen={onOpen}
    />
  );
}

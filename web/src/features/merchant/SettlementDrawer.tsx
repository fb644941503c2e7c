import { Badge, Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address, TxHash } from "../../components/Address.tsx";
import { Drawer } from "../../components/Dialog.tsx";
import { KeyValues } from "../../components/Layout.tsx";
import { FramedRows } from "../../components/List.tsx";
import { Money } from "../../components/Money.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { formatDateTime } from "../../lib/time.ts";
import type { MerchantSettlementDetail, Refund } from "../../lib/wire.ts";
import { useExplorer, useNetwork } from "../../shared/info.ts";
import { settlementQuery } from "./api.ts";
import styles from "./Merchant.module.css";
import { ReceiptLink } from "./ReceiptLink.tsx";
import { RefundForm } from "./RefundForm.tsx";
import { DELIVERY, refundLabel, resourceLabel, statusOf } from "./words.ts";

export function SettlementDrawer({
  id,
  onClose,
}: {
  id: string | null;
  onClose: () => void;
}): ReactNode {
  const query = useQuery({ ...settlementQuery(id ?? ""), enabled: id !== null });
  return (
    <Drawer opened={id !== null} onClose={onClose} title="Settlement">
      {query.data ? (
        <Details settlement={query.data} />
      ) : (
        <QueryStatus
          query={query}
          what="the settlement"
          failed="The settlement could not be loaded"
        >
          <Skeleton shape="title" />
          <Skeleton count={8} />
        </QueryStatus>
      )}
    </Drawer>
  );
}

function Details({ settlement }: { settlement: MerchantSettlementDetail }): ReactNode {
  const status = statusOf(settlement);
  const network = useNetwork(settlement.network);
  const explorer = useExplorer(settlement.network);
  return (
    <Stack gap="lg">
      <Stack gap="xs">
        <Money amount={settlement.amount} size="display" />
        <Group>
          <Badge color={status.color}>{status.label}</Badge>
          <Text span c="dimmed" size="sm">
            <TimeAgo iso={settlement.createdAt} />
          </Text>
        </Group>
        <Text span c="dimmed" size="sm">
          {status.meaning}
        </Text>
      </Stack>
      {network && (
        <RefundForm key={settlement.refunded} settlement={settlement} network={network} />
      )}
      {settlement.refunds.length > 0 && (
        <Stack gap="xs">
          <h3>Refunds</h3>
          <FramedRows>
            {settlement.refunds.map((refund) => (
              <RefundLine key={refund.id} refund={refund} explorer={explorer} />
            ))}
          </FramedRows>
        </Stack>
      )}
      <ReceiptLink settlement={settlement} />
      <KeyValues
        rows={[
          ["Payer", <Address key="payer" value={settlement.payer} full explorerUrl={explorer} />],
          resourceLabel(settlement.thirdParty) !== undefined && [
            "Sold, as the payment names it",
            <span key="sold">
              “{[settlement.thirdParty.method, settlement.thirdParty.url].filter(Boolean).join(" ")}
              ”
            </span>,
          ],
          settlement.thirdParty.description !== null && [
            "Description, as the payment states it",
            `“${settlement.thirdParty.description}”`,
          ],
          ["Delivery", DELIVERY[settlement.delivery]],
          ["Network", network?.name ?? settlement.network],
          ["Scheme", settlement.scheme],
          settlement.maximum !== null && [
            "Signed maximum",
            <Money key="maximum" amount={settlement.maximum} />,
          ],
          settlement.txHash !== null && [
            "Transaction",
            <TxHash key="tx" value={settlement.txHash} explorerUrl={explorer} />,
          ],
          settlement.errorReason !== null && [
            "Reason",
            <code key="reason">{settlement.errorReason}</code>,
          ],
          ["Accepted", formatDateTime(settlement.createdAt)],
          settlement.settledAt !== null && ["Settled", formatDateTime(settlement.settledAt)],
          ["Id", <code key="id">{settlement.id}</code>],
        ]}
      />
    </Stack>
  );
}

function RefundLine({ refund, explorer }: { refund: Refund; explorer?: string }): ReactNode {
  const words = refundLabel(refund);
  return (
    <li className={`list-row ${styles.refund}`}>
      <Badge color={words.color}>{words.label}</Badge>
      <span>
        {refund.txHash !== null && <TxHash value={refund.txHash} explorerUrl={explorer} />}
      </span>
      <Money amount={refund.amount} />
    </li>
  );
}

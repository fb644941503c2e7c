import { Group, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { CopyButton } from "../../components/CopyButton.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { MerchantSettlementDetail } from "../../lib/wire.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { makeReceipt } from "./api.ts";

/** The public page of a payment, for its buyer. */
export function ReceiptLink({ settlement }: { settlement: MerchantSettlementDetail }): ReactNode {
  const make = useMutation({
    mutationFn: () => makeReceipt(settlement.id),
    onSettled: invalidate.afterReceipt,
  });
  const url = settlement.receipt ?? make.data?.url;
  if (url !== undefined)
    return (
      <Group>
        <Link className="link-alone" to={new URL(url).pathname}>
          Receipt for the buyer
        </Link>
        <CopyButton value={url} what="link to the receipt" text="Copy link" />
      </Group>
    );
  if (settlement.status !== "settled") return null;
  return (
    <OwnerOnly>
      <Group>
        <MutationButton size="xs" mutation={make} pending="Making…">
          Make a receipt
        </MutationButton>
        <Text c="dimmed" size="sm">
          A signed page for the buyer. Anyone with its link can read it.
        </Text>
      </Group>
      {make.isError && <ErrorNotice title="The receipt was not made" error={make.error} />}
    </OwnerOnly>
  );
}

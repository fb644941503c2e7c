import { Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Note } from "../../components/Layout.tsx";
import { RequestForm } from "../../components/RequestForm.tsx";
import { atomic, canonical, formatUsdc, parseUsdc } from "../../lib/money.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { MerchantSettlementDetail, NetworkInfo } from "../../lib/wire.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import { sendRefund } from "./api.ts";
import { REFUND_STATUS } from "./words.ts";

interface RefundFormProps {
  settlement: MerchantSettlementDetail;
  network: NetworkInfo;
}

/** A refund is a transfer to the payer, signed by the merchant's own wallet. */
export function RefundForm({ settlement, network }: RefundFormProps): ReactNode {
  const { address, second } = useOwner();
  const { refundable } = settlement;
  const [amount, setAmount] = useState(refundable);
  const value = parseUsdc(amount);
  const refund = useMutation({
    mutationFn: () =>
      sendRefund(settlement, network, { owner: address, amount: canonical(amount) }),
    onSettled: invalidate.afterRefund,
  });
  if (refund.data)
    return (
      <Note color={refund.data.status === "settled" ? "green" : "yellow"}>
        <p role="status">
          <strong>{formatUsdc(refund.data.amount)} USDC</strong>{" "}
          {REFUND_STATUS[refund.data.status]?.meaning}
        </p>
      </Note>
    );
  if (refundable === "0") {
    if (settlement.status !== "settled" || settlement.final) return null;
    return (
      <Text span c="dimmed" size="sm">
        You can refund this payment when it is final.
      </Text>
    );
  }
  if (second !== null)
    return (
      <Text span c="dimmed" size="sm">
        To refund it, sign in with the wallet that received the payment.
      </Text>
    );
  const isTooMuch = value !== undefined && value > atomic(refundable);
  const isGood = value !== undefined && value > 0n && !isTooMuch;
  return (
    <RequestForm
      mutation={refund}
      failed="The refund failed"
      confirm="Sign and refund"
      pending="Waiting for your wallet…"
      disabled={!isGood}
    >
      <AmountInput
        label="Refund"
        description={
          <>
            Up to {formatUsdc(refundable)} USDC, back to{" "}
            <Address value={settlement.payer} copy={false} />
          </>
        }
        value={amount}
        onChange={setAmount}
        error={
          isTooMuch ? `${formatUsdc(refundable)} USDC of this payment can be refunded.` : undefined
        }
      />
      <Text c="dimmed" size="sm">
        Your wallet signs and pays the transfer; Purser pays the gas. A refund cannot be undone.
      </Text>
    </RequestForm>
  );
}

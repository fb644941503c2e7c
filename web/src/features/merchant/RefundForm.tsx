import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Note, Row, Stack } from "../../components/Layout.tsx";
import { atomic, canonical, formatUsdc, parseUsdc } from "../../lib/money.ts";
import { NotSigned } from "../../lib/orders/signing.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { MerchantSettlementDetail, NetworkInfo } from "../../lib/wire.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import { refund } from "./api.ts";
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
  const give = useMutation({
    mutationFn: () => refund(settlement, network, { owner: address, amount: canonical(amount) }),
    onSettled: invalidate.afterRefund,
  });
  const error = give.error instanceof NotSigned ? null : give.error;
  if (give.data)
    return (
      <Note tone={give.data.status === "settled" ? "ok" : "warn"}>
        <p role="status">
          <strong>{formatUsdc(give.data.amount)} USDC</strong>{" "}
          {REFUND_STATUS[give.data.status]?.meaning}
        </p>
      </Note>
    );
  if (refundable === "0") {
    if (settlement.status !== "settled" || settlement.final) return null;
    return <Muted>You can refund this payment when it is final.</Muted>;
  }
  if (second !== null)
    return <Muted>To refund it, sign in with the wallet that received the payment.</Muted>;
  const isTooMuch = value !== undefined && value > atomic(refundable);
  const isGood = value !== undefined && value > 0n && !isTooMuch;
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (isGood && !give.isPending) give.mutate();
      }}
    >
      <Stack gap={3}>
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
            isTooMuch
              ? `${formatUsdc(refundable)} USDC of this payment can be refunded.`
              : undefined
          }
        />
        {error && <ErrorNotice title="The refund failed" error={error} />}
        <Muted>
          Your wallet signs and pays the transfer; Purser pays the gas. A refund cannot be undone.
        </Muted>
        <Row>
          <Button
            type="submit"
            variant="primary"
            disabled={!isGood}
            pending={give.isPending && "Waiting for your wallet…"}
          >
            Sign and refund
          </Button>
        </Row>
      </Stack>
    </form>
  );
}

import { Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address, TxHash } from "../../components/Address.tsx";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { CopyText } from "../../components/CopyText.tsx";
import { KeyValues } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { formatDateTime } from "../../lib/time.ts";
import type { Payment } from "../../lib/wire.ts";
import { useExplorer, useNetwork } from "../../shared/info.ts";
import { fetchesQuery } from "./api.ts";
import { Evidence } from "./Evidence.tsx";
import { isThroughChannel } from "./status.ts";

/**
 * For sites that let earlier payers in without a new payment: how often the site did so, among the agent's
 * newest fetches.
 */
function useSignedInSince({ agentId, x402, status, createdAt }: Payment): string | undefined {
  const url = x402?.url ?? null;
  const enabled = url !== null && status === "settled";
  const { data } = useQuery({ ...fetchesQuery(agentId), enabled });
  if (!enabled || !data) return undefined;
  const { origin } = new URL(url);
  const [last, ...earlier] = data.items.filter(
    (each) => each.signedIn && each.origin === origin && each.createdAt > createdAt,
  );
  if (!last) return undefined;
  const times = earlier.length === 0 ? "" : ` ${earlier.length + 1} times`;
  return `Fetched again${times} with the wallet's signature, without paying; last ${formatDateTime(last.createdAt)}`;
}

export function PaymentFacts({
  payment,
  labelOf,
}: {
  payment: Payment;
  labelOf: (address: string) => string | undefined;
}): ReactNode {
  const explorer = useExplorer(payment.network);
  const network = useNetwork(payment.network);
  const { x402 } = payment;
  const again = useSignedInSince(payment);
  const address = (value: string): ReactNode => (
    <Address value={value} label={labelOf(value)} explorerUrl={explorer} />
  );
  return (
    <Stack gap="lg">
      <KeyValues
        rows={[
          payment.recipient !== null && ["To", address(payment.recipient)],
          payment.kind === "incoming" &&
            payment.sender !== null && ["From", address(payment.sender)],
          ["Network", network?.name ?? payment.network],
          payment.memo !== null && payment.memo !== "" && ["Memo", payment.memo],
          payment.task !== null && ["Task", payment.task],
          payment.txHash !== null && [
            "Transaction",
            <TxHash key="tx" value={payment.txHash} explorerUrl={explorer} />,
          ],
          payment.channel !== null && [
            isThroughChannel(payment) ? "Paid through a channel" : "Payment channel",
            <CopyText key="channel" value={payment.channel.id} what="channel id" />,
          ],
          payment.channel !== null &&
            payment.channel.charged !== null && [
              "Charged",
              <Money key="charged" amount={payment.channel.charged} />,
            ],
          payment.channel !== null &&
            payment.channel.ceiling !== null && [
              "Signed in all",
              <Money key="ceiling" amount={payment.channel.ceiling} />,
            ],
          typeof payment.channel?.voucher === "string" && [
            "Voucher",
            <CopyText key="voucher" value={payment.channel.voucher} what="voucher" />,
          ],
          payment.blockNumber !== null && ["Block", payment.blockNumber],
          ["Requested", formatDateTime(payment.createdAt)],
          payment.settledAt !== null && [
            "Settled",
            `${formatDateTime(payment.settledAt)}${payment.final ? "" : ", not final yet"}`,
          ],
          payment.settledAt === null &&
            payment.validBefore !== null &&
            payment.status !== "blocked" && ["Decided by", formatDateTime(payment.validBefore)],
          payment.apiKey !== null && [
            "API key",
            `${payment.apiKey.label === "" ? "" : `${payment.apiKey.label}, `}${payment.apiKey.prefix}…${payment.apiKey.last4}`,
          ],
          ["Payment id", <CopyText key="id" value={payment.id} what="payment id" />],
          payment.requestId !== null && [
            "Request id",
            <CopyText key="request" value={payment.requestId} what="request id" />,
          ],
        ]}
      />
      {x402 && (
        <Stack gap="sm">
          <h3>Paid request</h3>
          <KeyValues
            rows={[
              x402.url !== null && ["URL", <code key="url">{x402.url}</code>],
              x402.upstreamStatus !== null && ["Seller's response", x402.upstreamStatus],
              x402.delivered !== null && ["Delivered", x402.delivered ? "Yes" : "No"],
              again !== undefined && ["Later", again],
            ]}
          />
          {x402.evidence && (
            <Evidence evidence={x402.evidence} explorer={explorer} labelOf={labelOf} />
          )}
          {x402.thirdParty.requirement !== null && x402.thirdParty.requirement !== undefined && (
            <CodeBlock
              label="The seller's 402 response"
              code={JSON.stringify(x402.thirdParty.requirement, null, 2)}
            />
          )}
        </Stack>
      )}
    </Stack>
  );
}

import { Badge, Button, Group, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Address, TxHash } from "../../components/Address.tsx";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { CopyText } from "../../components/CopyText.tsx";
import { DownloadIcon } from "../../components/icons.tsx";
import { KeyValues, Note, Section } from "../../components/Layout.tsx";
import { FramedRows } from "../../components/List.tsx";
import { Money } from "../../components/Money.tsx";
import { saveFile } from "../../lib/save-file.ts";
import { formatDateTime } from "../../lib/time.ts";
import type { SignedMerchantReceipt } from "../../lib/wire.ts";
import { useExplorer, useNetwork } from "../../shared/info.ts";
import styles from "./Receipt.module.css";

/** What was paid, as the service signed it. */
export function Receipt({ signed }: { signed: SignedMerchantReceipt }): ReactNode {
  const { receipt } = signed;
  const { status, final, message, refunds } = receipt;
  return (
    <Stack gap="lg">
      <Section>
        <Stack gap="lg">
          <Stack gap="xs">
            <Money amount={receipt.amount} size="display" />
            <Group>
              <Badge color={status === "paid" ? "green" : "red"}>
                {status === "paid" ? "Paid" : "Removed from the chain"}
              </Badge>
              {status === "paid" && !final && <Badge color="sea">Not final yet</Badge>}
              {refunds.some((refund) => refund.status === "settled") && (
                <Badge color="gray">
                  {receipt.refunded === receipt.amount ? "Refunded" : "Partly refunded"}
                </Badge>
              )}
            </Group>
            {status === "paid" ? (
              <Text c="dimmed" size="sm">
                {message}
              </Text>
            ) : (
              <Note color="yellow">{message}</Note>
            )}
          </Stack>
          <Facts signed={signed} />
        </Stack>
      </Section>
      {refunds.length > 0 && <Refunds signed={signed} />}
      <Signature signed={signed} />
    </Stack>
  );
}

function Facts({ signed: { receipt } }: { signed: SignedMerchantReceipt }): ReactNode {
  const network = useNetwork(receipt.network);
  const explorer = useExplorer(receipt.network);
  const { url, method } = receipt.thirdParty;
  return (
    <KeyValues
      rows={[
        ["Paid to", <Address key="payee" value={receipt.payee} full explorerUrl={explorer} />],
        ["Paid by", <Address key="payer" value={receipt.payer} full explorerUrl={explorer} />],
        url !== "" && [
          "For, as the payment names it",
          <span key="for">“{[method, url].filter((text) => text !== "").join(" ")}”</span>,
        ],
        receipt.paidAt !== "" && ["Paid at", formatDateTime(receipt.paidAt)],
        ["Network", network?.name ?? receipt.network],
        receipt.transaction !== "" && [
          "Transaction",
          <TxHash key="tx" value={receipt.transaction} explorerUrl={explorer} />,
        ],
        receipt.block !== "" && [
          "Block",
          receipt.final ? `${receipt.block}, final` : `${receipt.block}, not final yet`,
        ],
        ["As of", formatDateTime(receipt.asOf)],
      ]}
    />
  );
}

const REFUND_STATES: Record<string, string> = {
  settled: "Refunded",
  pending: "Pending",
  failed: "Not refunded",
};

function Refunds({ signed: { receipt } }: { signed: SignedMerchantReceipt }): ReactNode {
  const explorer = useExplorer(receipt.network);
  return (
    <Section title="Refunds" hint="From the seller's wallet back to the buyer's.">
      <FramedRows>
        {receipt.refunds.map((refund, index) => (
          <li key={`${refund.transaction} ${index}`} className={`list-row ${styles.refund}`}>
            <div>
              <p>{REFUND_STATES[refund.status] ?? refund.status}</p>
              {refund.transaction !== "" && (
                <TxHash value={refund.transaction} explorerUrl={explorer} />
              )}
            </div>
            <Money amount={refund.amount} />
          </li>
        ))}
      </FramedRows>
    </Section>
  );
}

function Signature({ signed }: { signed: SignedMerchantReceipt }): ReactNode {
  const { receipt, signer, signature } = signed;
  return (
    <Section
      title="Signature"
      hint="This service signs each receipt with an account that it settles payments with. A saved receipt can be checked later."
      actions={
        <Button
          onClick={() => {
            const content = `${JSON.stringify(signed, null, 2)}\n`;
            saveFile("purser-receipt.json", content, "application/json");
          }}
        >
          <DownloadIcon size={16} />
          Save
        </Button>
      }
    >
      <Stack gap="md">
        <KeyValues
          rows={[
            ["Signed by", <Address key="signer" value={signer} full />],
            [
              "Signature",
              <CopyText
                key="signature"
                value={signature}
                what="signature"
                shown={`${signature.slice(0, 14)}…${signature.slice(-8)}`}
              />,
            ],
          ]}
        />
        <CodeBlock
          label="Check it yourself"
          code={`npx purser receipt ${receipt.service}/receipts/${receipt.id}`}
        />
      </Stack>
    </Section>
  );
}

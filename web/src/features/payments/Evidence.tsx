import { Badge, Group, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { BlockIcon, CheckIcon } from "../../components/icons.tsx";
import { KeyValues } from "../../components/Layout.tsx";
import { formatDateTime } from "../../lib/time.ts";
import type { Payment } from "../../lib/wire.ts";
import styles from "./Activity.module.css";

type EvidenceData = NonNullable<NonNullable<Payment["x402"]>["evidence"]>;

interface EvidenceProps {
  evidence: EvidenceData;
  explorer: string | undefined;
  labelOf: (address: string) => string | undefined;
}

/**
 * The seller's signed offer and receipt: our findings, and the seller's own texts, separate and marked as
 * such.
 */
export function Evidence({ evidence, explorer, labelOf }: EvidenceProps): ReactNode {
  const { offer, receipt, thirdParty } = evidence;
  const signer = receipt?.signer ?? offer?.signer ?? null;
  const words = {
    ...(thirdParty.key !== null && { key: thirdParty.key }),
    ...(thirdParty.offer !== undefined && { offer: thirdParty.offer }),
    ...(thirdParty.receipt !== undefined && { receipt: thirdParty.receipt }),
  };
  return (
    <Stack gap="sm">
      <h3>Seller’s receipt</h3>
      <Group>
        {evidence.verified ? (
          <Badge color="green" leftSection={<CheckIcon size={14} />}>
            Verified
          </Badge>
        ) : (
          <Badge color="yellow" leftSection={<BlockIcon size={14} />}>
            Not verified
          </Badge>
        )}
      </Group>
      <Text c="dimmed" size="sm" className={styles.finding}>
        {evidence.why ??
          `The payee signed ${offer ? "this offer and its receipt" : "this receipt"} for this payment.`}
      </Text>
      <KeyValues
        rows={[
          offer !== null && ["Offer", signatureLabel(offer)],
          receipt !== null && ["Receipt", signatureLabel(receipt)],
          signer !== null && [
            "Signed by",
            <Address key="signer" value={signer} label={labelOf(signer)} explorerUrl={explorer} />,
          ],
          receipt !== null &&
            receipt.issuedAt !== null && ["Issued", formatDateTime(receipt.issuedAt)],
          receipt?.verified === true && [
            "Refers to",
            receipt.transaction === null ? "This request, no transaction" : "This transaction",
          ],
        ]}
      />
      {Object.keys(words).length > 0 && (
        <CodeBlock
          label="Text from the seller, not checked by Purser"
          code={JSON.stringify(words, null, 2)}
        />
      )}
    </Stack>
  );
}

const FORMATS = { eip712: "EIP-712", jws: "JWS" };

const signatureLabel = ({ verified, format }: NonNullable<EvidenceData["offer"]>): string =>
  `${verified ? "Verified" : "Not verified"}${format === null ? "" : `, ${FORMATS[format]}`}`;

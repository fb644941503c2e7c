import { Text } from "@mantine/core";
import type { ReactNode } from "react";
import { KeyValues } from "../../components/Layout.tsx";
import { type FieldToSign, fieldsToSign } from "../../lib/orders/to-sign.ts";
import { useConnection } from "../../lib/wallet/connection.ts";
import type { TypedData } from "../../lib/wire.ts";
import { useNetworkOfChain } from "../info.ts";
import styles from "./ToSign.module.css";

/** Every field of a document that a wallet is about to show: in plain form, and in the wallet's form. */
export function ToSign({
  typedData,
  isScrolled = false,
}: {
  typedData: TypedData;
  /** In a dialog, whose buttons stay visible below. */
  isScrolled?: boolean;
}): ReactNode {
  const network = useNetworkOfChain(Number(typedData.domain["chainId"]));
  // A passkey shows nothing of an order.
  const isPasskey = useConnection()?.wallet.kind === "passkey";
  return (
    <section
      className={styles.fields}
      data-scrolled={isScrolled || undefined}
      aria-label={isPasskey ? "What your passkey signs" : "What your wallet shows"}
      tabIndex={isScrolled ? 0 : undefined}
    >
      <Fields fields={fieldsToSign(typedData, network)} isRawShown={!isPasskey} />
    </section>
  );
}

interface FieldsProps {
  fields: FieldToSign[];
  /** The wallet's own form of each value. */
  isRawShown: boolean;
}

const Fields = ({ fields, isRawShown }: FieldsProps): ReactNode => (
  <KeyValues
    rows={fields.map((field) => [
      field.name,
      field.entries === undefined ? (
        <Forms key={field.name} {...field} isRawShown={isRawShown} />
      ) : (
        <Entries key={field.name} entries={field.entries} isRawShown={isRawShown} />
      ),
    ])}
  />
);

const Forms = ({ raw, plain, isRawShown }: FieldToSign & { isRawShown: boolean }): ReactNode =>
  plain === undefined || !isRawShown ? (
    (plain ?? raw) || "empty"
  ) : (
    <>
      {plain}{" "}
      <Text span c="dimmed" size="xs">
        (your wallet shows {raw})
      </Text>
    </>
  );

const Entries = ({
  entries,
  isRawShown,
}: {
  entries: FieldToSign[][];
  isRawShown: boolean;
}): ReactNode =>
  entries.length === 0
    ? "none"
    : entries.map((fields, index) => (
        // The position is all that identifies an entry.
        // oxlint-disable-next-line react/no-array-index-key
        <Fields key={index} fields={fields} isRawShown={isRawShown} />
      ));

import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useParams } from "react-router";
import { Note } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { receiptQuery } from "../../features/receipts/api.ts";
import { Receipt } from "../../features/receipts/Receipt.tsx";
import { formatDateTime } from "../../lib/time.ts";
import { Absent } from "../Absent.tsx";

export default function ReceiptScreen(): ReactNode {
  const { receiptId = "" } = useParams();
  const query = useQuery(receiptQuery(receiptId));
  if (!query.data)
    return (
      <Absent
        query={query}
        above={null}
        what="the receipt"
        failed="The receipt could not be loaded"
        missing="Receipt not found"
        missingLead="The link is not complete, or the payment is too old. Ask the seller for a new one."
      />
    );
  return (
    <>
      <PageHeader title="Receipt" lead="A payment in USDC that this service settled." />
      {query.isError && (
        <Note color="yellow">
          The receipt could not be read again. It shows what was so at{" "}
          {formatDateTime(query.data.receipt.asOf)}.
        </Note>
      )}
      <Receipt signed={query.data} />
    </>
  );
}

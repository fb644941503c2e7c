/** The labels of settlement and refund states for merchants. */
import type { MantineColor } from "@mantine/core";
import type { MerchantProduct, MerchantSettlement, Refund } from "../../lib/wire.ts";

export const STATUS_OPTIONS = [
  { value: "", label: "Every status" },
  { value: "settled", label: "Settled" },
  { value: "pending", label: "Pending" },
  { value: "failed,expired", label: "Failed" },
];

/** What was sold, as the payment names it, short: "GET api.example.com/weather". */
export function resourceLabel({ url, method }: MerchantProduct["thirdParty"]): string | undefined {
  if (url === null || !URL.canParse(url)) return undefined;
  const { protocol, host, pathname } = new URL(url);
  if (!/^(https?|mcp):$/.test(protocol) || host === "") return undefined;
  const place = `${protocol === "mcp:" ? "mcp://" : ""}${host}${pathname}`;
  const short = place.length > 60 ? `${place.slice(0, 59)}…` : place;
  return method === null ? short : `${method} ${short}`;
}

/** What is known about the answer to the payment. */
export const DELIVERY: Record<MerchantSettlement["delivery"], string> = {
  delivered: "Delivered, as the payer's wallet reported",
  not_delivered: "Not delivered, as the payer's wallet reported",
  not_reported: "Not reported",
};

interface Words {
  label: string;
  color: MantineColor;
  meaning: string;
}

export function statusOf(settlement: MerchantSettlement): Words {
  const { status, refunded, amount, final } = settlement;
  if (status === "settled" && refunded !== "0")
    return {
      label: refunded === amount ? "Refunded" : "Partly refunded",
      color: "gray",
      meaning: `You refunded ${refunded} USDC.`,
    };
  if (status === "settled")
    return {
      label: "Settled",
      color: "green",
      meaning: final
        ? "Final: the payment is in your wallet."
        : "In your wallet; final after a few more blocks.",
    };
  if (status === "failed" || status === "expired")
    return {
      label: status === "expired" ? "Expired" : "Failed",
      color: "red",
      meaning: settlement.errorMessage ?? "Not paid; the chain shows no payment.",
    };
  return {
    label: "Pending",
    color: "sea",
    meaning: "Accepted and sent; not confirmed yet.",
  };
}

export const REFUND_STATUS: Record<string, Words> = {
  settled: { label: "Refunded", color: "green", meaning: "The payer received the refund." },
  pending: {
    label: "Pending",
    color: "sea",
    meaning:
      "Signed and sent. The amount stays reserved until the transaction is confirmed or fails.",
  },
  failed: {
    label: "Failed",
    color: "red",
    meaning: "The refund was not paid. You can refund this amount again.",
  },
};

export const refundLabel = (refund: Refund): Words =>
  REFUND_STATUS[refund.status] ?? { label: refund.status, color: "gray", meaning: "" };

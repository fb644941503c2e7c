/** The labels of settlement and refund states for merchants. */
import type { Tone } from "../../components/Badge.tsx";
import type { MerchantSettlement, Refund } from "../../lib/wire.ts";

export const STATUS_OPTIONS = [
  { value: "", label: "Every status" },
  { value: "settled", label: "Settled" },
  { value: "pending", label: "Pending" },
  { value: "failed,expired", label: "Failed" },
];

interface Words {
  label: string;
  tone: Tone;
  meaning: string;
}

export function statusOf(settlement: MerchantSettlement): Words {
  const { status, refunded, amount, final } = settlement;
  if (status === "settled" && refunded !== "0")
    return {
      label: refunded === amount ? "Refunded" : "Partly refunded",
      tone: "neutral",
      meaning: `You refunded ${refunded} USDC.`,
    };
  if (status === "settled")
    return {
      label: "Settled",
      tone: "ok",
      meaning: final
        ? "Final: the payment is in your wallet."
        : "In your wallet; final after a few more blocks.",
    };
  if (status === "failed" || status === "expired")
    return {
      label: status === "expired" ? "Expired" : "Failed",
      tone: "bad",
      meaning: settlement.errorMessage ?? "Not paid; the chain shows no payment.",
    };
  return {
    label: "Pending",
    tone: "accent",
    meaning: "Accepted and sent; not confirmed yet.",
  };
}

export const REFUND_STATUS: Record<string, Words> = {
  settled: { label: "Refunded", tone: "ok", meaning: "The payer received the refund." },
  pending: {
    label: "Pending",
    tone: "accent",
    meaning:
      "Signed and sent. The amount stays reserved until the transaction is confirmed or fails.",
  },
  failed: {
    label: "Failed",
    tone: "bad",
    meaning: "The refund was not paid. You can refund this amount again.",
  },
};

export const refundLabel = (refund: Refund): Words =>
  REFUND_STATUS[refund.status] ?? { label: refund.status, tone: "neutral", meaning: "" };

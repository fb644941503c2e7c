/** States of settlements and refunds, in a merchant's words. */
import type { Tone } from "../../components/Badge.tsx";
import type { MerchantSettlement, Refund } from "../../lib/wire.ts";

export const STATUS_OPTIONS = [
  { value: "", label: "Every status" },
  { value: "settled", label: "Settled" },
  { value: "pending", label: "On their way" },
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
      meaning: `You gave ${refunded} USDC of it back.`,
    };
  if (status === "settled")
    return {
      label: "Settled",
      tone: "ok",
      meaning: final
        ? "In your wallet, for good."
        : "In your wallet; a few more blocks, and nothing can take it back.",
    };
  if (status === "failed" || status === "expired")
    return {
      label: status === "expired" ? "Expired" : "Failed",
      tone: "bad",
      meaning: settlement.errorMessage ?? "It provably was not paid.",
    };
  return {
    label: "On its way",
    tone: "accent",
    meaning: "Accepted and sent; the chain has not decided.",
  };
}

export const REFUND_STATUS: Record<string, Words> = {
  settled: { label: "Refunded", tone: "ok", meaning: "It is back with the payer." },
  pending: {
    label: "On its way",
    tone: "accent",
    meaning: "Signed and sent. Its part stays reserved until the chain decides.",
  },
  failed: {
    label: "Did not happen",
    tone: "bad",
    meaning: "It provably was not paid: its part can be refunded again.",
  },
};

export const refundWords = (refund: Refund): Words =>
  REFUND_STATUS[refund.status] ?? { label: refund.status, tone: "neutral", meaning: "" };

import type { Tone } from "../../components/Badge.tsx";
import type { Approval } from "../../lib/wire.ts";

export const STATUS: Record<Approval["status"], { label: string; tone: Tone; meaning: string }> = {
  open: {
    label: "Waiting for you",
    tone: "warn",
    meaning: "Not paid. The agent waits for your decision.",
  },
  granted: {
    label: "Allowed",
    tone: "accent",
    meaning: "The agent may make this payment once. It has not paid yet.",
  },
  declined: {
    label: "Declined",
    tone: "neutral",
    meaning: "Not paid. The agent sees that you declined.",
  },
  expired: {
    label: "Expired",
    tone: "neutral",
    meaning: "Not paid. The request was not decided in time, or the payment terms changed.",
  },
  used: {
    label: "Used",
    tone: "ok",
    meaning: "The agent made this payment. The approval cannot be used again.",
  },
};

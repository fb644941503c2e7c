import type { Tone } from "../../components/Badge.tsx";
import type { Approval } from "../../lib/wire.ts";

export const STATUS: Record<Approval["status"], { label: string; tone: Tone; meaning: string }> = {
  open: {
    label: "Waiting for you",
    tone: "warn",
    meaning: "Nothing was paid. The agent waits for your decision.",
  },
  granted: {
    label: "Allowed",
    tone: "accent",
    meaning: "The agent may make this payment once. It has not done so yet.",
  },
  declined: {
    label: "Declined",
    tone: "neutral",
    meaning: "Nothing was paid. The agent was told that you said no.",
  },
  expired: {
    label: "Expired",
    tone: "neutral",
    meaning: "Nothing was paid. Nobody decided in time, or the agent's call has other terms now.",
  },
  used: {
    label: "Used",
    tone: "ok",
    meaning: "The agent has made this payment. It cannot be made again.",
  },
};

import type { MantineColor } from "@mantine/core";
import type { Approval } from "../../lib/wire.ts";

export const STATUS: Record<
  Approval["status"],
  { label: string; color: MantineColor; meaning: string }
> = {
  open: {
    label: "Waiting for you",
    color: "yellow",
    meaning: "Not paid. The agent waits for your decision.",
  },
  granted: {
    label: "Allowed",
    color: "sea",
    meaning: "The agent may make this payment once. It has not paid yet.",
  },
  declined: {
    label: "Declined",
    color: "gray",
    meaning: "Not paid. The agent sees that you declined.",
  },
  expired: {
    label: "Expired",
    color: "gray",
    meaning: "Not paid. The request was not decided in time, or the payment terms changed.",
  },
  used: {
    label: "Used",
    color: "green",
    meaning: "The agent made this payment. The approval cannot be used again.",
  },
};

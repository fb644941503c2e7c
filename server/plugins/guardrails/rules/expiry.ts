import type { Rule } from "./rule.ts";

export interface ExpiryFacts {
  expired: boolean;
}

export const expiry = {
  name: "expiry",
  codes: ["agent_expired"],
  check: ({ expired }) =>
    expired
      ? { refusal: "agent_expired", detail: "The agent has expired." }
      : { refusal: null, detail: "The agent has not expired." },
  field: {
    name: "expiresAt",
    label: "Expires",
    help: "The agent cannot pay after this time",
  },
} as const satisfies Rule<ExpiryFacts, "agent_expired">;

import type { Rule } from "./rule.ts";

export interface StatusFacts {
  status: string;
}

export const status = {
  name: "status",
  codes: ["agent_paused"],
  check: ({ status }) => ({
    refusal: status === "active" ? null : "agent_paused",
    detail: `The agent is ${status}.`,
  }),
} as const satisfies Rule<StatusFacts, "agent_paused">;

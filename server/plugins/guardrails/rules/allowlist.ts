import type { Rule } from "./rule.ts";

export interface AllowlistFacts {
  /** The payee is on the agent's list. */
  allowed: boolean;
}

export const allowlist = {
  name: "allowlist",
  codes: ["recipient_not_allowed"],
  check: ({ allowed }) =>
    allowed
      ? { refusal: null, detail: "The recipient is on the allowlist." }
      : {
          refusal: "recipient_not_allowed",
          detail: "The recipient is not on the agent's allowlist.",
        },
  liftable: true,
  field: {
    name: "allowlist",
    label: "Who may be paid",
    help: "Everybody else is refused. An empty list pays nobody.",
  },
} as const satisfies Rule<AllowlistFacts, "recipient_not_allowed">;

/** Wire types of approvals: an agent's request to its owner, and the owner's decision. */
import { Type, type Static } from "typebox";
import {
  AddressOutput,
  NetworkId,
  Nullable,
  Page,
  pageQuery,
  Strict,
  Timestamp,
  Id,
  Described,
  OneOf,
  Amount,
} from "./common.ts";
import { ApprovalAuthorization } from "./orders.ts";

/** Members of a paying request. They do not count when two calls are compared. */
export const askingForApproval = {
  requestApproval: Type.Optional(
    Type.Boolean({
      description:
        "Asks the owner to allow the payment if a rule refuses it: 202 `approval_required`. Ask once, wait, do not split the payment",
    }),
  ),
  reason: Type.Optional(
    Type.String({
      maxLength: 280,
      pattern: "^[^\\u0000]*$",
      description: "With requestApproval: the reason for the payment, in a sentence for the owner",
    }),
  ),
};

const WORDS = "open|granted|declined|expired|used";
export const ApprovalStatus = Type.Union(
  [
    Type.Literal("open"),
    Type.Literal("granted"),
    Type.Literal("declined"),
    Type.Literal("expired"),
    Type.Literal("used"),
  ],
  {
    description:
      "open: the owner has not decided. granted: repeat the call with `idempotencyKey`. used: the approval was used for `paymentId`",
  },
);

const facts = {
  approvalId: Id,
  expiresAt: Timestamp,
  payee: AddressOutput,
  amount: Described(Amount, "The most that is paid"),
  network: NetworkId,
  site: Nullable(Type.String({ description: "The origin that x402-fetch pays; null for a spend" })),
  reason: Nullable(Type.String({ description: "The reason given by the agent" })),
  denial: Type.Object({
    code: Type.String(),
    rule: Type.String(),
    detail: Type.String(),
    policy: Type.Record(Type.String(), Type.String(), {
      description: "The numbers that the rule used",
    }),
  }),
};
const forAgents = {
  idempotencyKey: Type.String({ description: "Repeat the same call with this Idempotency-Key" }),
  waitUrl: Type.String(),
  next: Type.String({ description: "What to do now" }),
};

/** The 202 response of spend and x402-fetch. */
export const ApprovalRequired = Type.Object({
  success: Type.Literal(false),
  status: Type.Literal("approval_required"),
  state: Type.Union([Type.Literal("open"), Type.Literal("granted")]),
  paid: Type.Literal(false),
  ...facts,
  ...forAgents,
});
export type ApprovalRequired = Static<typeof ApprovalRequired>;

export const AgentApproval = Type.Object({
  ...facts,
  ...forAgents,
  status: ApprovalStatus,
  paymentId: Nullable(Id),
});
export type AgentApproval = Static<typeof AgentApproval>;

export const WaitQuery = Strict({
  wait: Type.Optional(
    Type.String({
      pattern: "^([0-9]|[12][0-9]|30)$",
      description: "Seconds to wait for a decision, at most 30",
    }),
  ),
});

export const Approval = Type.Object({
  id: Id,
  agentId: Id,
  agentName: Type.String(),
  status: ApprovalStatus,
  kind: OneOf(["spend", "x402"]),
  ...facts,
  asset: AddressOutput,
  url: Nullable(Type.String()),
  memo: Nullable(Type.String()),
  createdAt: Timestamp,
  decidedAt: Nullable(Timestamp),
  deniedPaymentId: Nullable(Id),
  paymentId: Nullable(Id),
});
export type Approval = Static<typeof Approval>;
export const ApprovalPage = Page(Approval);

export const ApprovalQuery = Strict({
  ...pageQuery,
  status: Type.Optional(
    Type.String({
      pattern: `^(${WORDS})(,(${WORDS}))*$`,
      description: `Comma list of ${WORDS}`,
    }),
  ),
});

export const ApproveBody = Strict({ authorization: ApprovalAuthorization });

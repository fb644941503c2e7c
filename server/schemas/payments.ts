/** Wire types of payments: an agent's requests, and payments as agents and owners read them. */
import { Type, type Static } from "typebox";
import { SELF_FIELDS, type SelfWire } from "../../packages/rules/src/fields.ts";
import {
  AgentStatus,
  AllowlistEntry,
  inResponse,
  KeyEnd,
  KeyPrefix,
  Limits,
  NetworkBalance,
} from "./agents.ts";
import { askingForApproval } from "./approvals.ts";
import { Task, TaskId, taskOfCall } from "./tasks.ts";
import {
  AddressInput,
  AddressOutput,
  Amount,
  Detail,
  joinedAnswer,
  NetworkId,
  Nullable,
  Page,
  pageQuery,
  Strict,
  ThirdParty,
  Timestamp,
  TxHash,
  Id,
  Policy,
  Digits,
  Hex32,
  Described,
  OneOf,
} from "./common.ts";

/** Postgres text cannot contain NUL. */
const Memo = Type.String({
  maxLength: 280,
  pattern: "^[^\\u0000]*$",
  description: "For your own records",
});

export const SpendRequest = Strict({
  recipient: AddressInput,
  amount: Amount,
  network: Type.Optional(NetworkId),
  memo: Type.Optional(Memo),
  ...taskOfCall,
  ...askingForApproval,
});
export type SpendRequest = Static<typeof SpendRequest>;

export const SpendAnswer = Type.Object({
  success: Type.Literal(true),
  txHash: TxHash,
  paymentId: Id,
  recipient: AddressOutput,
  amount: Amount,
  network: NetworkId,
  settledAt: Timestamp,
  remaining: Described(Amount, "The rest of the daily limit after this payment"),
  task: Type.Optional(Described(TaskId, "The task in which it counts")),
  ...joinedAnswer,
});

/** For reads by agents: without it the response has what an agent needs to pay. */
export const DetailQuery = Strict({ detail: Type.Optional(Detail) });

const { address, label, ...payeeDetails } = AllowlistEntry.properties;

/** With `detail: "short"`, the optional members are left out if they are null, or only in the full response. */
export const AgentSelf = Type.Object({
  id: Id,
  name: Type.String(),
  status: Type.Unsafe<string>(AgentStatus),
  expired: Type.Optional(Type.Boolean()),
  wallet: AddressOutput,
  walletAddress: Type.Optional(Described(AddressOutput, "Full: the same as `wallet`")),
  network: NetworkId,
  asset: AddressOutput,
  balance: Nullable(Amount, "USDC on `network`; null while the chain does not respond"),
  balances: Type.Optional(
    Type.Array(NetworkBalance, {
      description:
        "On every configured network; name one in a spend to pay from there. Short: only if there are several",
    }),
  ),
  limits: Limits,
  tasks: Type.Optional(
    Type.Object(
      {
        open: Type.Integer(),
        newest: Type.Array(Type.Pick(Task, ["id", "left", "expiresAt"]), {
          description: "At most five; `GET /api/agents/tasks` lists all",
        }),
      },
      { description: "The agent's open tasks; only if it has any" },
    ),
  ),
  ...inResponse<SelfWire>(SELF_FIELDS),
  allowlist: Type.Array(
    Type.Object({ address, label, ...Type.Partial(Type.Object(payeeDetails)).properties }),
  ),
  key: Type.Object({
    id: Type.Optional(Id),
    label: Type.String(),
    prefix: KeyPrefix,
    last4: KeyEnd,
    createdAt: Type.Optional(Timestamp),
    expiresAt: Nullable(Timestamp),
  }),
});
export type AgentSelf = Static<typeof AgentSelf>;

const ChannelNeeds = Type.Object(
  {
    channelHeld: Type.Optional(Amount),
    channelDelay: Type.Optional(Type.Integer()),
    payeeChannelHeld: Type.Optional(Described(Amount, "`channelHeld` of the payee")),
  },
  {
    description:
      "For a refused payment channel: the least values of the owner's settings that allow it",
  },
);

export const PaymentKind = OneOf(
  ["spend", "x402", "withdrawal", "incoming", "deposit"],
  "deposit: into a payment channel, which is not spent yet",
);
export const PaymentStatus = OneOf(
  ["blocked", "reserved", "submitted", "settled", "voided", "unknown"],
  "reserved and submitted: counted, not final. unknown: signed, without proof of the outcome yet",
);

const signedPiece = {
  verified: Type.Boolean(),
  why: Nullable(Type.String(), "Why it is not valid"),
  format: Nullable(Type.Enum(["eip712", "jws"])),
  signer: Nullable(AddressOutput, "Who signed it, where its key is a wallet's"),
};

export const PaymentEvidence = Type.Object(
  {
    verified: Type.Boolean({
      description: "The payee signed the receipt, and the offer if there is one, for this payment",
    }),
    why: Nullable(Type.String(), "Why it is not verified"),
    offer: Nullable(Type.Object(signedPiece)),
    receipt: Nullable(
      Type.Object({
        ...signedPiece,
        issuedAt: Nullable(Timestamp),
        transaction: Nullable(TxHash, "null: it names none"),
      }),
    ),
    thirdParty: ThirdParty({
      key: Nullable(Type.String({ description: "The signer's key id (JWS)" })),
      offer: Type.Optional(Type.Unknown({ description: "As it was signed" })),
      receipt: Type.Optional(Type.Unknown({ description: "As it was signed" })),
    }),
  },
  {
    description:
      "The seller's signed offer and receipt (offer-and-receipt). The proof of payment is the chain",
  },
);
export type PaymentEvidence = Static<typeof PaymentEvidence>;

export const Payment = Type.Object({
  id: Id,
  agentId: Id,
  agentName: Type.String(),
  kind: PaymentKind,
  status: PaymentStatus,
  network: NetworkId,
  asset: AddressOutput,
  recipient: Nullable(AddressOutput),
  sender: Nullable(AddressOutput),
  amount: Amount,
  maximum: Type.Union([Amount, Type.Null()], {
    description:
      "Present if a maximum was signed: `amount` is the maximum while it may be charged, then the charged amount",
  }),
  channel: Nullable(
    Type.Object({
      id: Hex32,
      ceiling: Nullable(Amount, "What the wallet has signed for in all; null: a deposit"),
      charged: Nullable(Amount, "What the seller charged for this payment; null: not known"),
      voucher: Type.Optional(
        Nullable(Type.String(), "The signature of the ceiling; only in a single payment"),
      ),
    }),
    "The payment channel: paid by a voucher, without a transaction. `amount` is what the signed ceiling grew by",
  ),
  memo: Nullable(Type.String()),
  task: Nullable(
    Type.String(),
    "The task in which it counts; of a refusal, the one that was named",
  ),
  createdAt: Timestamp,
  updatedAt: Timestamp,
  settledAt: Nullable(Timestamp),
  txHash: Nullable(TxHash),
  blockNumber: Nullable(Digits),
  final: Type.Boolean({
    description: "For a settled payment: final, no reorganisation can reverse it",
  }),
  requestId: Nullable(Id),
  apiKey: Nullable(
    Type.Object({
      id: Id,
      label: Type.String(),
      prefix: KeyPrefix,
      last4: KeyEnd,
    }),
  ),
  nonce: Nullable(Type.String()),
  validBefore: Nullable(Timestamp),
  repeats: Type.Integer({
    description:
      "How often the same payment was refused again within the hour; `updatedAt` is the last time. A refusal without a recipient and a URL counts the refusals of one rule beyond the 100 per hour that are stored separately",
  }),
  denial: Nullable(
    Type.Object({
      code: Type.String(),
      suggestion: Type.String(),
      policy: Policy,
      site: Type.Optional(Type.String({ description: "For `site_payee_changed`" })),
      expectedPayee: Type.Optional(AddressOutput),
      seenPayee: Type.Optional(AddressOutput),
      needs: Type.Optional(ChannelNeeds),
      availableAt: Nullable(Timestamp),
      nextReleaseAt: Nullable(Timestamp),
    }),
  ),
  trace: Type.Array(
    Type.Object({
      rule: Type.String(),
      passed: Nullable(Type.Boolean()),
      detail: Type.String(),
      liftable: Type.Optional(Type.Literal(true, { description: "The owner may allow it once" })),
    }),
  ),
  x402: Nullable(
    Type.Object({
      url: Nullable(Type.String()),
      listingId: Nullable(Id),
      thirdParty: ThirdParty({
        requirement: Type.Unknown({ description: "The accepted terms, as the seller wrote them" }),
      }),
      upstreamStatus: Nullable(Type.Integer()),
      delivered: Nullable(Type.Boolean()),
      evidence: Nullable(PaymentEvidence),
    }),
  ),
  failure: Nullable(Type.Object({ code: Type.String(), detail: Nullable(Type.String()) })),
});
export type Payment = Static<typeof Payment>;
export const PaymentPage = Page(Payment);

/** A payment in an agent's list. Short: the optional members only if they are set, and not all of them. */
export const PaymentSummary = Type.Object({
  ...Type.Partial(Payment).properties,
  id: Id,
  kind: PaymentKind,
  status: PaymentStatus,
  network: NetworkId,
  asset: AddressOutput,
  recipient: Nullable(AddressOutput),
  amount: Amount,
  createdAt: Timestamp,
  settledAt: Nullable(Timestamp),
  txHash: Nullable(TxHash),
  x402: Type.Optional(
    Nullable(
      Type.Object({
        url: Nullable(Type.String()),
        delivered: Nullable(Type.Boolean()),
        upstreamStatus: Nullable(Type.Integer()),
        listingId: Type.Optional(Nullable(Id)),
        thirdParty: Type.Optional(
          ThirdParty({ requirement: Type.Unknown({ description: "As in one payment" }) }),
        ),
        evidence: Type.Optional(Nullable(PaymentEvidence)),
      }),
    ),
  ),
});
export type PaymentSummary = Static<typeof PaymentSummary>;
export const PaymentSummaryPage = Page(PaymentSummary);

const words = (text: string) =>
  Type.String({ pattern: `^(${text})(,(${text}))*$`, description: `Comma list of ${text}` });

export const paymentFilters = {
  ...pageQuery,
  task: Type.Optional(Described(TaskId, "Only payments of this task")),
  status: Type.Optional(words("blocked|reserved|submitted|settled|voided|unknown")),
  kind: Type.Optional(words("spend|x402|withdrawal|incoming|deposit")),
  from: Type.Optional(
    Type.String({ maxLength: 40, description: "Created at or after (RFC 3339)" }),
  ),
  to: Type.Optional(Type.String({ maxLength: 40, description: "Created before (RFC 3339)" })),
};
export const PaymentFilters = Strict(paymentFilters);
export type PaymentFilters = Static<typeof PaymentFilters>;
export const OwnPaymentFilters = Strict({ ...paymentFilters, detail: Type.Optional(Detail) });

export const PaymentParams = Strict({
  id: Type.String({ minLength: 1, maxLength: 64 }),
  paymentId: Type.String({ minLength: 1, maxLength: 64 }),
});

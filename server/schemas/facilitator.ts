/** Wire types of the facilitator: the protocol's responses, with members of our own. */
import { Type, type Static } from "typebox";
import {
  AddressOutput,
  NetworkId,
  Nullable,
  Timestamp,
  Id,
  Described,
  OneOf,
  AtomicAmount,
  Amount,
  TxHash,
} from "./common.ts";

const Loose = { additionalProperties: true };
const Optional = Type.Optional;

export const FacilitatorService = Type.Object({
  facilitator: Type.String({ description: "The URL a paid API sets as its facilitator" }),
  supportedNetworks: Type.Array(NetworkId),
  supportedAssets: Type.Array(AddressOutput, { description: "Token contracts, each once" }),
  assets: Type.Array(
    Type.Object({
      network: NetworkId,
      asset: AddressOutput,
      symbol: Type.String(),
      decimals: Type.Integer(),
      name: Type.String({ description: "EIP-712 domain name: `extra.name` of the requirements" }),
      version: Type.String({
        description: "EIP-712 domain version: `extra.version` of the requirements",
      }),
    }),
  ),
  version: Type.Literal("1.0"),
});
export type FacilitatorService = Static<typeof FacilitatorService>;

export const Supported = Type.Object({
  kinds: Type.Array(
    Type.Object({
      x402Version: Type.Integer(),
      scheme: Type.String(),
      network: Type.String(),
      extra: Optional(Type.Record(Type.String(), Type.Unknown())),
    }),
  ),
  extensions: Type.Array(Type.String()),
  signers: Type.Record(Type.String(), Type.Array(AddressOutput)),
  fees: Optional(
    Type.Object(
      {
        billedTo: Type.Literal("payTo"),
        perSettlement: AtomicAmount,
        perMille: Type.String({ description: "Of the amount", examples: ["2.5"] }),
        mostPerMille: Type.String({
          description: "No fee is more than this part of its payment",
          examples: ["100"],
        }),
        credit: Described(AtomicAmount, "How much a payee may owe on a network"),
        pay: Type.String({ description: "Where a payee pays what it owes" }),
      },
      {
        description:
          "What this facilitator charges the payee for a settlement: not taken from the payment, and owed to this facilitator. Absent: nothing",
      },
    ),
  ),
});
export type Supported = Static<typeof Supported>;

export const X402Version = Type.Unsafe<1 | 2>({ type: "integer", enum: [1, 2] });

/** Documented, not enforced: any JSON gets the protocol's response with status 200. */
export const PaymentBody = Type.Object(
  {
    x402Version: X402Version,
    paymentPayload: Type.Object({}, { ...Loose, description: "The protocol's PaymentPayload" }),
    paymentRequirements: Type.Object(
      {},
      { ...Loose, description: "The protocol's PaymentRequirements" },
    ),
  },
  Loose,
);

const Extra = Optional(
  Type.Record(Type.String(), Type.Unknown(), {
    description: "What the scheme adds: for `batch-settlement`, the channel's state on the chain",
  }),
);

export const VerifyAnswer = Type.Object({
  isValid: Type.Boolean(),
  payer: Optional(AddressOutput),
  amount: Optional(AtomicAmount),
  error: Optional(Type.String({ description: "A sentence for people" })),
  invalidReason: Optional(Type.String({ description: "The protocol's reason code" })),
  invalidMessage: Optional(Type.String()),
  extra: Extra,
});
export type VerifyAnswer = Static<typeof VerifyAnswer>;

/** The protocol always has a string here. */
const Transaction = Type.String({
  pattern: "^(0x[0-9a-f]{64})?$",
  description: "Transaction hash; empty where there is no transaction",
  examples: [`0x${"8f".repeat(32)}`],
});

export const SettleAnswer = Type.Object({
  success: Type.Boolean(),
  txHash: Transaction,
  transaction: Described(Transaction, "The same, by the protocol's name"),
  network: Type.String({ description: "As named in the requirements" }),
  payer: Optional(AddressOutput),
  amount: Optional(AtomicAmount),
  paymentId: Optional(Type.String({ description: "For GET /api/x402/payments/:id" })),
  errorReason: Optional(Type.String({ description: "The protocol's reason code" })),
  errorMessage: Optional(Type.String()),
  error: Optional(Type.String({ description: "A sentence for people" })),
  extra: Extra,
});
export type SettleAnswer = Static<typeof SettleAnswer>;

export const SettlementStatus = OneOf(["queued", "submitted", "settled", "failed", "expired"]);

export const SettlementState = Type.Object({
  id: Id,
  status: SettlementStatus,
  network: NetworkId,
  txHash: Nullable(TxHash),
  final: Type.Boolean({
    description: "False while it is open, and while a reorganisation could still remove its block",
  }),
  errorReason: Nullable(Type.String()),
  createdAt: Timestamp,
  settledAt: Nullable(Timestamp),
});
export type SettlementState = Static<typeof SettlementState>;

const Count = Type.Integer();

/** Statistics of this facilitator. They contain nothing that the public chain does not show. */
export const FacilitatorStats = Type.Object({
  last24h: Type.Object({
    verified: Type.Integer({ description: "Verify requests answered" }),
    settled: Count,
    failed: Count,
    volume: Amount,
    successRate: Nullable(Type.Number({ description: "0 to 1; null before the first settlement" })),
    medianSettleMs: Nullable(Count),
    p95SettleMs: Nullable(Count),
  }),
  allTime: Type.Object({ settled: Count, volume: Amount }),
  batchSizes: Type.Array(Type.Object({ size: Count, count: Count })),
  hourly: Type.Array(Type.Object({ at: Timestamp, settled: Count, failed: Count, volume: Amount })),
  recent: Type.Array(
    Type.Object({
      id: Id,
      status: SettlementStatus,
      kind: Type.String(),
      network: NetworkId,
      from: AddressOutput,
      to: AddressOutput,
      amount: Amount,
      txHash: Nullable(TxHash),
      createdAt: Timestamp,
      settledAt: Nullable(Timestamp),
    }),
  ),
  relayers: Type.Array(
    Type.Object({
      network: NetworkId,
      address: AddressOutput,
      gasBalance: Nullable(Type.String({ description: "In whole coins; null: chain unreachable" })),
      gasSymbol: Type.String(),
      low: Type.Boolean(),
    }),
  ),
});
export type FacilitatorStats = Static<typeof FacilitatorStats>;

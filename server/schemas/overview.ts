import { Type, type Static } from "typebox";
import {
  NetworkId,
  Nullable,
  Strict,
  Timestamp,
  TxHash,
  Id,
  Digits,
  Described,
  Amount,
} from "./common.ts";

export const OverviewQuery = Strict({
  agentId: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
});

export const OverviewBucket = Type.Object({
  at: Timestamp,
  spent: Described(Amount, "Settled and outstanding spends and x402 payments"),
  count: Type.Integer(),
  blocked: Type.Integer(),
});

export const LedgerState = Type.Object({
  network: NetworkId,
  equalsChain: Nullable(
    Type.Boolean({ description: "Null before the chain was compared for the first time" }),
  ),
  asOfBlock: Nullable(Digits, "The last final block that was compared"),
  asOf: Nullable(Timestamp),
  differences: Type.Array(
    Type.Object({
      kind: Type.String(),
      meaning: Type.String(),
      agentId: Id,
      txHash: Nullable(TxHash),
      blockNumber: Nullable(Digits),
      seenAt: Timestamp,
    }),
    { description: "Open differences of this owner's agents" },
  ),
});
export type LedgerState = Static<typeof LedgerState>;

export const GasBudget = Type.Object({
  network: NetworkId,
  /** `payments`: of all agents of this owner. */
  for: Type.Union([Type.Literal("payments"), Type.Literal("withdrawals")]),
  perDay: Type.String({ description: "USDC of gas that this service pays for in 24 hours" }),
  left: Type.String({ description: "Of that, now; it refills evenly" }),
  held: Type.String({ description: "Reserved for payments in progress" }),
  used: Type.String({ description: "Total gas cost" }),
});

export const Overview = Type.Object({
  totals: Type.Object({
    balance: Nullable(Amount, "On all networks; null while one does not respond"),
    balances: Type.Array(
      Type.Object({
        network: NetworkId,
        balance: Nullable(Amount, "Null while this chain does not respond"),
      }),
    ),
    spent24h: Amount,
    reserved: Amount,
    blocked24h: Type.Integer(),
    agents: Type.Integer(),
    activeAgents: Type.Integer(),
  }),
  hourly: Type.Array(OverviewBucket, { description: "24 hours, oldest first" }),
  daily: Type.Array(OverviewBucket, { description: "7 days (UTC), oldest first" }),
  gas: Type.Array(GasBudget, { description: "Gas cost of this owner's payments, in USDC" }),
  ledger: Type.Array(LedgerState, { description: "Whether the ledger matches the chain" }),
});
export type Overview = Static<typeof Overview>;

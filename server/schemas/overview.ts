import { Type, type Static } from "typebox";
import { NetworkId, Nullable, Strict, Timestamp, TxHash } from "./common.ts";

export const OverviewQuery = Strict({
  agentId: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
});

const Bucket = Type.Object({
  at: Timestamp,
  spent: Type.String({ description: "Settled and outstanding spends and x402 payments" }),
  count: Type.Integer(),
  blocked: Type.Integer(),
});

export const LedgerState = Type.Object({
  network: NetworkId,
  equalsChain: Nullable(
    Type.Boolean({ description: "Null before the chain was compared for the first time" }),
  ),
  asOfBlock: Nullable(Type.String({ description: "The last final block that was compared" })),
  asOf: Nullable(Timestamp),
  differences: Type.Array(
    Type.Object({
      kind: Type.String(),
      meaning: Type.String(),
      agentId: Type.String(),
      txHash: Nullable(TxHash),
      blockNumber: Nullable(Type.String()),
      seenAt: Timestamp,
    }),
    { description: "Of this owner's agents, not healed yet" },
  ),
});
export type LedgerState = Static<typeof LedgerState>;

export const Overview = Type.Object({
  totals: Type.Object({
    balance: Nullable(
      Type.String({ description: "On all networks together; null while one does not answer" }),
    ),
    balances: Type.Array(
      Type.Object({
        network: NetworkId,
        balance: Nullable(Type.String({ description: "Null while this chain does not answer" })),
      }),
    ),
    spent24h: Type.String(),
    reserved: Type.String(),
    blocked24h: Type.Integer(),
    agents: Type.Integer(),
    activeAgents: Type.Integer(),
  }),
  hourly: Type.Array(Bucket, { description: "24 hours, oldest first" }),
  daily: Type.Array(Bucket, { description: "7 days (UTC), oldest first" }),
  ledger: Type.Array(LedgerState, { description: "Whether the ledger equals the chain" }),
});
export type Overview = Static<typeof Overview>;

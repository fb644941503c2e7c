import { Type, type Static } from "typebox";
import { NetworkId, Nullable, Strict, Timestamp } from "./common.ts";

export const OverviewQuery = Strict({
  agentId: Type.Optional(Type.String({ minLength: 1, maxLength: 64 })),
});

const Bucket = Type.Object({
  at: Timestamp,
  spent: Type.String({ description: "Settled and outstanding spends and x402 payments" }),
  count: Type.Integer(),
  blocked: Type.Integer(),
});

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
});
export type Overview = Static<typeof Overview>;

import { Type } from "typebox";
import { NetworkId, Nullable, Timestamp } from "./common.ts";

export const ChainStats = Type.Object({
  network: NetworkId,
  chain: Type.String(),
  height: Type.Integer(),
  hash: Type.String(),
  time: Timestamp,
  gasUsed: Type.String(),
  gasLimit: Type.String(),
  baseFee: Type.String({ description: "Per gas, in wei" }),
  transactions: Type.Integer({ description: "In the latest block" }),
  meanBlockTimeSeconds: Nullable(Type.Number({ description: "Over the last `blocksSampled`" })),
  blocksSampled: Type.Integer(),
});

/** The protocol's, not ours: see the PAYMENT-REQUIRED header. A settle that failed answers it too. */
export const PaymentRequiredAnswer = Type.Object(
  {
    x402Version: Type.Integer(),
    error: Type.String(),
    accepts: Type.Optional(Type.Array(Type.Object({}, { additionalProperties: true }))),
  },
  { additionalProperties: true },
);

import { Type, type Static } from "typebox";
import { AddressOutput, NetworkId, Nullable } from "./common.ts";

export const Health = Type.Object({
  status: Type.Literal("ok"),
  version: Type.String(),
  uptimeSeconds: Type.Number(),
});

const Part = Type.Object({ ok: Type.Boolean(), detail: Type.String() });
export const Ready = Type.Object({
  ready: Type.Boolean(),
  parts: Type.Record(Type.String(), Part),
});
export type ReadyPart = Static<typeof Part>;

export const NetworkInfo = Type.Object({
  id: NetworkId,
  chainId: Type.Integer(),
  name: Type.String(),
  usdc: AddressOutput,
  explorerUrl: Type.String(),
  testnet: Type.Boolean(),
  blockHeight: Nullable(Type.String({ description: "Null while the RPC does not answer" })),
  relayers: Type.Array(AddressOutput, {
    description: "Addresses that pay the gas of settlements here",
  }),
});

/** Facts about this service that anyone may know. */
export const ServiceInfo = Type.Object({
  name: Type.Literal("Purser"),
  version: Type.String(),
  publicUrl: Type.String(),
  localWorld: Type.Boolean({ description: "True when a faucet and a demo wallet exist" }),
  defaultNetwork: NetworkId,
  networks: Type.Array(NetworkInfo),
});
export type ServiceInfo = Static<typeof ServiceInfo>;

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
  slug: Type.String(),
  testnet: Type.Boolean(),
  nativeSymbol: Type.String({ description: "The coin that pays for gas, 18 decimals" }),
  usdc: Type.Object({ address: AddressOutput, name: Type.String(), version: Type.String() }),
  explorerUrl: Type.String(),
  walletRpcUrl: Type.String({ description: "For wallet_addEthereumChain" }),
  blockTimeMs: Type.Integer(),
  blockHeight: Nullable(Type.String({ description: "Null while the chain does not answer" })),
  demoPath: Nullable(Type.String({ description: "A paid endpoint of ours to try" })),
});

/** Facts about this service that anyone may know. */
export const ServiceInfo = Type.Object({
  name: Type.Literal("Purser"),
  version: Type.String(),
  publicUrl: Type.String(),
  localWorld: Type.Boolean({ description: "True when a faucet and a demo wallet exist" }),
  facilitator: Type.Object({
    url: Type.String(),
    requiresKey: Type.Boolean(),
    addresses: Type.Array(AddressOutput, { description: "Who pays the gas of settlements" }),
  }),
  networks: Type.Array(NetworkInfo, { description: "The first is the agents' default" }),
  rules: Type.Array(
    Type.Object({
      name: Type.String(),
      codes: Type.Array(Type.String(), { description: "What its refusals are called" }),
      field: Nullable(
        Type.Object(
          {
            name: Type.String(),
            of: Type.Optional(
              Type.Literal("payee", {
                description: "Set for one payee; without it, for the agent",
              }),
            ),
            label: Type.String(),
            help: Type.String(),
          },
          { description: "Where the owner of an agent sets it" },
        ),
      ),
    }),
    { description: "The guardrails of every payment, in the order they are looked at" },
  ),
  last24h: Type.Object({
    settled: Type.Integer(),
    volume: Type.String({ description: "USDC, decimal" }),
    medianSettleMs: Nullable(Type.Integer()),
    blocked: Type.Integer({ description: "Payments refused by a guardrail" }),
  }),
});
export type ServiceInfo = Static<typeof ServiceInfo>;

export const ErrorCatalogue = Type.Object({
  items: Type.Array(
    Type.Object({
      code: Type.String(),
      status: Type.Integer(),
      title: Type.String(),
      help: Type.String(),
      retryable: Type.Boolean(),
    }),
  ),
});

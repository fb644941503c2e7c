import { Type, type Static } from "typebox";
import { AddressOutput, NetworkId, Nullable, Digits, Amount, ErrorCodeWord } from "./common.ts";

export const Health = Type.Object({
  status: Type.Literal("ok"),
  version: Type.String(),
  commit: Type.String({
    description: "What was compiled; `-dirty` after it means with changes. `source`: not compiled",
  }),
  builtAt: Nullable(Type.String(), "When it was compiled"),
  uptimeSeconds: Type.Number(),
});

export const ReadyPart = Type.Object({ ok: Type.Boolean(), detail: Type.String() });
export const Ready = Type.Object({
  ready: Type.Boolean(),
  parts: Type.Record(Type.String(), ReadyPart),
});
export type ReadyPart = Static<typeof ReadyPart>;

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
  blockHeight: Nullable(Digits, "Null while the chain does not respond"),
  demoPath: Nullable(Type.String({ description: "A paid demo endpoint of this service" })),
});

const FormField = Type.Object(
  {
    name: Type.String(),
    of: Type.Optional(
      Type.Literal("payee", {
        description: "Present if the rule is per payee; otherwise it is per agent",
      }),
    ),
    label: Type.String(),
    help: Type.String(),
  },
  { description: "Where the owner of an agent sets it" },
);

/** Public facts about this service. */
export const ServiceInfo = Type.Object({
  name: Type.Literal("Purser"),
  version: Type.String(),
  publicUrl: Type.String(),
  localWorld: Type.Boolean({ description: "True when a faucet and a demo wallet exist" }),
  passkeys: Nullable(
    Type.Object({
      domain: Type.String({ description: "To which they belong" }),
      url: Type.String({ description: "The web app at the address where they work" }),
    }),
    "Null: the address of this service is a number, which has no passkeys",
  ),
  facilitator: Type.Object({
    url: Type.String(),
    requiresKey: Type.Boolean(),
    addresses: Type.Array(AddressOutput, { description: "Who pays the gas of settlements" }),
  }),
  networks: Type.Array(NetworkInfo, { description: "The first is the agents' default" }),
  rules: Type.Array(
    Type.Object({
      name: Type.String(),
      codes: Type.Array(Type.String(), { description: "The error code of its refusals" }),
      field: Nullable(FormField),
      otherFields: Type.Optional(
        Type.Array(FormField, { description: "Of a rule with several settings" }),
      ),
    }),
    { description: "The guardrails of every payment, in the order in which they are checked" },
  ),
  last24h: Type.Object({
    settled: Type.Integer(),
    volume: Amount,
    medianSettleMs: Nullable(Type.Integer()),
    blocked: Type.Integer({ description: "Payments refused by a guardrail" }),
  }),
});
export type ServiceInfo = Static<typeof ServiceInfo>;

export const ErrorKind = Type.Object({
  code: ErrorCodeWord,
  status: Type.Integer({ minimum: 200, maximum: 599 }),
  title: Type.String(),
  help: Type.String(),
  retryable: Type.Boolean(),
});
export const ErrorCatalogue = Type.Object({ items: Type.Array(ErrorKind) });

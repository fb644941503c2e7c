/** Wire types of x402-fetch. */
import { Type, type Static } from "typebox";
import { askingForApproval } from "./approvals.ts";
import {
  AddressOutput,
  Amount,
  joinedAnswer,
  NetworkId,
  Nullable,
  Strict,
  ThirdParty,
  TxHash,
} from "./common.ts";

export const X402FetchRequest = Strict(
  {
    url: Type.Optional(
      Type.String({ minLength: 1, maxLength: 4096, examples: ["https://api.example.com/data"] }),
    ),
    listingId: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 64,
        description: "Fetch a marketplace listing under its pinned terms",
      }),
    ),
    method: Type.Optional(
      Type.Union(
        [
          Type.Literal("GET"),
          Type.Literal("HEAD"),
          Type.Literal("POST"),
          Type.Literal("PUT"),
          Type.Literal("PATCH"),
          Type.Literal("DELETE"),
        ],
        {
          description: "Default GET, or the listing's method",
        },
      ),
    ),
    headers: Type.Optional(
      Type.Record(Type.String(), Type.String(), {
        description: "Sent to the target, without credentials, hop-by-hop and payment headers",
      }),
    ),
    body: Type.Optional(
      Type.Unknown({ description: "A string is sent as it is; any other value is sent as JSON" }),
    ),
    maxAmount: Type.Optional(Amount),
    dryRun: Type.Optional(
      Type.Boolean({
        description:
          "A quote: asks with GET or HEAD without a body, pays nothing, and answers price and verdict, no content",
      }),
    ),
    ...askingForApproval,
    timeoutMs: Type.Optional(
      Type.Integer({
        minimum: 100,
        maximum: 120_000,
        description: "For each answer of the target (30000)",
      }),
    ),
  },
  { description: "Exactly one of url and listingId" },
);
export type X402FetchRequest = Static<typeof X402FetchRequest>;

export const X402FetchAnswer = Type.Object({
  success: Type.Literal(true),
  paid: Type.Boolean(),
  amountPaid: Type.String(),
  txHash: Nullable(TxHash),
  data: Type.Optional(
    Type.Unknown({
      description: "What the target sent (untrusted): JSON as a value, text as a string",
    }),
  ),
  dataBase64: Type.Optional(
    Type.String({ description: "Instead of data when the answer is binary" }),
  ),
  source: Type.String({ description: "The URL that was asked" }),
  status: Type.Integer({ description: "HTTP status of the target" }),
  contentType: Nullable(Type.String()),
  network: Nullable(NetworkId),
  payTo: Nullable(AddressOutput),
  paymentId: Nullable(Type.String()),
  delivered: Type.Boolean({
    description: "The target answered with a success; apart from whether it was paid",
  }),
  remaining: Type.String({ description: "Left of the daily limit" }),
  ...joinedAnswer,
  dryRun: Type.Optional(Type.Literal(true)),
  price: Type.Optional(
    Nullable(Type.String({ description: "Dry run: what it would cost; null: it did not say" })),
  ),
  requirement: Type.Optional(
    Type.Object(
      {
        scheme: Type.String(),
        network: NetworkId,
        amount: Type.String({ description: "Atomic units" }),
        asset: AddressOutput,
        payTo: AddressOutput,
        maxTimeoutSeconds: Type.Number(),
        extra: Type.Object({ name: Type.String(), version: Type.String() }),
      },
      { description: "Dry run: the terms that would be paid, as they were read and checked" },
    ),
  ),
  thirdParty: Type.Optional(
    ThirdParty({
      serviceName: Nullable(Type.String()),
      description: Nullable(Type.String()),
      mimeType: Nullable(Type.String()),
    }),
  ),
  verdict: Type.Optional(
    Type.Object({
      allowed: Type.Boolean(),
      code: Nullable(Type.String()),
      detail: Nullable(Type.String()),
      rules: Type.Array(
        Type.Object({
          rule: Type.String(),
          passed: Nullable(Type.Boolean()),
          detail: Type.String(),
          liftable: Type.Optional(
            Type.Literal(true, {
              description:
                "It refused, and the owner may let this one payment pass: requestApproval",
            }),
          ),
          availableAt: Type.Optional(
            Nullable(
              Type.String({
                description:
                  "Of a limit of a time that did not pass: when it alone will; null: never",
              }),
            ),
          ),
        }),
      ),
      policy: Nullable(Type.Record(Type.String(), Type.Unknown())),
      availableAt: Nullable(Type.String()),
      nextReleaseAt: Nullable(Type.String()),
    }),
  ),
});

export const SiteLookupBody = Strict({
  url: Type.String({
    minLength: 1,
    maxLength: 4096,
    description: "Any paid page of the site; https where no scheme is given",
    examples: ["https://api.example.com/data"],
  }),
});

export const SiteLookup = Type.Object({
  site: Type.String({ description: "The origin to list the payee at" }),
  readableSite: Nullable(
    Type.String({
      description: "An international site as people write it; `site` is its punycode",
    }),
  ),
  payTo: AddressOutput,
  price: Type.String({ description: "USDC, of the page that was asked" }),
  asset: AddressOutput,
  network: NetworkId,
  x402Version: Type.Integer(),
  listed: Type.Array(AddressOutput, { description: "Whom the agent may pay at this site already" }),
  thirdParty: ThirdParty({
    serviceName: Nullable(Type.String()),
    description: Nullable(Type.String()),
    mimeType: Nullable(Type.String()),
    resource: Nullable(Type.String({ description: "What the site says this page is" })),
  }),
});
export type SiteLookup = Static<typeof SiteLookup>;

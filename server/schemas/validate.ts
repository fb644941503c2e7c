/** The validator: what a paid API answers without payment, and who could pay it. */
import { Type, type Static } from "typebox";
import {
  AddressOutput,
  Amount,
  Nullable,
  priceIsMaximum,
  Strict,
  ThirdParty,
  Timestamp,
} from "./common.ts";

export const ValidateMethod = Type.Union([Type.Literal("GET"), Type.Literal("POST")]);
export const ValidateRequest = Strict(
  {
    url: Type.String({ minLength: 1, maxLength: 2048, description: "The URL of the paid API" }),
    method: Type.Optional(ValidateMethod),
    body: Type.Optional(
      Type.String({
        maxLength: 4096,
        description:
          "Of a POST. It is sent only where a POST without a body is refused with a status of 400 to 499",
      }),
    ),
  },
  { examples: [{ url: "https://api.example.com/weather" }] },
);
export type ValidateRequest = Static<typeof ValidateRequest>;

export const Severity = Type.Union([
  Type.Literal("error", { description: "Nobody can pay this, or this offer" }),
  Type.Literal("warning", { description: "Some clients or marketplaces refuse it" }),
  Type.Literal("note", { description: "Could be better, or could not be checked" }),
]);
export const Finding = Type.Object({
  code: Type.String({
    description: "A cause of docs/reference/validate.md; new ones may be added",
  }),
  severity: Severity,
  message: Type.String(),
  where: Type.String({
    description: "A JSON path, or the name of a header",
    examples: ["PAYMENT-REQUIRED: accepts[0].extra"],
  }),
  fix: Nullable(Type.String({ description: "The line to change, as text to copy" })),
  offer: Nullable(Type.Integer({ description: "The number of the offer, from 1" })),
  thirdParty: Type.Optional(ThirdParty({ found: Type.String() })),
});
export type Finding = Static<typeof Finding>;

export const Simulation = Type.Object({
  result: Type.Union([
    Type.Literal("holds", { description: "Everything but the balance holds" }),
    Type.Literal("refused"),
    Type.Literal("not_run"),
  ]),
  why: Type.String(),
});
export type Simulation = Static<typeof Simulation>;

export const ValidatedOffer = Type.Object({
  offer: Type.Integer({ description: "Its number, from 1" }),
  where: Type.String({ examples: ["PAYMENT-REQUIRED: accepts[0]"] }),
  protocol: Type.Union([Type.Literal("x402"), Type.Literal("mpp")]),
  x402Version: Nullable(Type.Integer()),
  network: Nullable(Type.String({ description: "A network that this service knows" })),
  networkName: Nullable(Type.String()),
  asset: Nullable(AddressOutput),
  payTo: Nullable(AddressOutput),
  price: Nullable(Amount, "In USDC; null for another asset"),
  ...priceIsMaximum,
  simulation: Simulation,
  thirdParty: ThirdParty({
    scheme: Type.String(),
    network: Type.String(),
    asset: Type.String(),
    amount: Type.String(),
  }),
});
export type ValidatedOffer = Static<typeof ValidatedOffer>;

export const ClientOutlook = Type.Object({
  client: Type.Union([
    Type.Literal("purser"),
    Type.Literal("x402-2"),
    Type.Literal("x402-1"),
    Type.Literal("mpp"),
  ]),
  name: Type.String(),
  outcome: Type.Union([
    Type.Literal("pays"),
    Type.Literal("refuses", { description: "It signs nothing" }),
    Type.Literal("fails", { description: "It signs, and the payment is refused afterwards" }),
    Type.Literal("unknown"),
  ]),
  offer: Nullable(Type.Integer()),
  why: Type.String(),
});
export type ClientOutlook = Static<typeof ClientOutlook>;

export const WellKnownOutcome = Type.Object({
  outcome: Type.Union([
    Type.Literal("found"),
    Type.Literal("broken", { description: "A finding says which line or member" }),
    Type.Literal("missing"),
  ]),
  resources: Type.Integer({ description: "How many URLs of this host it names, at most 50" }),
});
export type WellKnownOutcome = Static<typeof WellKnownOutcome>;

export const Validation = Type.Object({
  url: Type.String(),
  method: ValidateMethod,
  ok: Type.Boolean({ description: "At least one offer has no error" }),
  status: Nullable(Type.Integer({ description: "What the URL answered" })),
  findings: Type.Array(Finding, { description: "Errors first" }),
  offers: Type.Array(ValidatedOffer),
  clients: Type.Array(ClientOutlook),
  listed: Type.Object({
    wouldBe: Type.Boolean(),
    byPayment: Type.Boolean({ description: "The first payment that settles here lists it" }),
    why: Type.String(),
    listingId: Nullable(Type.String()),
  }),
  wellKnown: Nullable(WellKnownOutcome, "`/.well-known/x402` of the host; null without a 402"),
  thirdParty: ThirdParty({
    serviceName: Nullable(Type.String()),
    description: Nullable(Type.String()),
    mimeType: Nullable(Type.String()),
  }),
  checkedAt: Timestamp,
});
export type Validation = Static<typeof Validation>;

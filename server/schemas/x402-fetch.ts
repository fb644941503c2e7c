/** Wire types of x402-fetch. */
import { Type, type Static } from "typebox";
import { askingForApproval } from "./approvals.ts";
import {
  AddressOutput,
  Amount,
  joinedAnswer,
  NetworkId,
  Nullable,
  PaymentOffer,
  Strict,
  ThirdParty,
  TxHash,
  Id,
  Described,
  AtomicAmount,
  Timestamp,
} from "./common.ts";
import { PaymentEvidence } from "./payments.ts";

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
    mcp: Type.Optional(
      Strict(
        {
          tool: Type.String({ minLength: 1, maxLength: 128, examples: ["get_weather"] }),
          arguments: Type.Optional(
            Type.Record(Type.String(), Type.Unknown(), { description: "Of the tool" }),
          ),
        },
        {
          description:
            "Call this tool of the MCP server at url (streamable HTTP), paying its price; the answer is the tool's result",
        },
      ),
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
      Type.Unknown({
        description:
          "A string is sent byte for byte; any other value as JSON, its numbers in the digits they were written in",
      }),
    ),
    maxAmount: Type.Optional(Amount),
    dryRun: Type.Optional(
      Type.Boolean({
        description:
          "A quote: asks with GET or HEAD without a body (of a tool: reads the server's list of tools), pays nothing, and answers price and verdict, no content",
      }),
    ),
    maxAge: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 86_400,
        description:
          "Seconds. A GET this agent paid for within them is told again (`cached`), and not paid again; a new answer is kept for that",
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
  amountPaid: Amount,
  txHash: Nullable(TxHash),
  text: Type.Optional(
    Type.String({
      description:
        "What the target sent (untrusted), exactly, where it is text and no JSON: decoded by its declared charset, without a byte order mark",
    }),
  ),
  data: Type.Optional(
    Type.Unknown({
      description:
        "What the target sent (untrusted), where it is JSON: as a value, its numbers in the digits they came in; null: nothing",
    }),
  ),
  dataBase64: Type.Optional(
    Type.String({
      description:
        "What the target sent, where it is no text, or text that JSON would make much longer (mostly control characters)",
    }),
  ),
  contentEncoding: Type.Optional(
    Type.String({ description: "How dataBase64 is still packed (zstd, or a gzip that is none)" }),
  ),
  truncated: Type.Optional(
    Type.Boolean({ description: "There was more, or should have been: this is what arrived" }),
  ),
  truncatedBy: Type.Optional(
    Type.Union(
      ["size", "connection", "timeout", "encoding"].map((why) => Type.Literal(why)),
      {
        description:
          "size: longer than maxBytes of a dry run; connection, timeout: the target broke off; encoding: the rest does not unpack",
      },
    ),
  ),
  bytes: Type.Optional(Type.Integer({ description: "How much arrived, unpacked" })),
  headers: Type.Optional(
    Type.Record(Type.String(), Type.String(), {
      description: "Of the target's answer: content-type, location, link, retry-after, etag",
    }),
  ),
  omittedHeaders: Type.Array(Type.String(), {
    description: "Headers of the request that were not forwarded",
  }),
  note: Type.Optional(
    Type.String({ description: "What to know of an answer that is not simply whole" }),
  ),
  receipt: Type.Optional(
    Type.Object(
      {
        scheme: Type.Optional(Type.String()),
        amount: Type.Optional(Amount),
        maximum: Type.Optional(Amount),
        evidence: Type.Optional(PaymentEvidence),
      },
      {
        description:
          "Of a payment up to a maximum: what was signed, and what the chain shows was charged. Of any: what the seller signed",
      },
    ),
  ),
  budgetReturnsAt: Type.Optional({
    ...Timestamp,
    description: "Until then what was not charged stays set aside",
  }),
  cached: Type.Optional(
    Type.Literal(true, { description: "Paid for before, and told again (maxAge)" }),
  ),
  cachedAt: Type.Optional(Timestamp),
  ageSeconds: Type.Optional(Type.Integer()),
  cachedPaymentId: Type.Optional(Type.String({ description: "The payment that bought it" })),
  signedIn: Type.Optional(
    Type.Literal(true, {
      description: "The target took the wallet's signature for an earlier payment (sign-in-with-x)",
    }),
  ),
  source: Type.String({ description: "The URL that was asked" }),
  status: Type.Integer({
    description: "HTTP status of the target; of a tool that was called: 200, or 500 if it failed",
  }),
  contentType: Nullable(Type.String()),
  network: Nullable(NetworkId),
  payTo: Nullable(AddressOutput),
  paymentId: Nullable(Id),
  delivered: Type.Boolean({
    description: "The target answered with a success; apart from whether it was paid",
  }),
  remaining: Described(Amount, "Left of the daily limit"),
  ...joinedAnswer,
  dryRun: Type.Optional(Type.Literal(true)),
  maxBytes: Type.Optional(
    Type.Integer({ description: "Dry run: how much of an answer is passed on" }),
  ),
  price: Type.Optional(Nullable(Amount, "Dry run: what it would cost; null: it did not say")),
  requirement: Type.Optional(
    Type.Object(
      {
        scheme: Type.String(),
        network: NetworkId,
        amount: AtomicAmount,
        asset: AddressOutput,
        payTo: AddressOutput,
        maxTimeoutSeconds: Type.Number(),
        extra: Type.Object({ name: Type.String(), version: Type.String() }),
      },
      { description: "Dry run: the terms that would be paid, as they were read and checked" },
    ),
  ),
  offers: Type.Optional(
    Type.Array(PaymentOffer, {
      description: "Dry run: all that the target accepts, in its order, and why not",
    }),
  ),
  thirdParty: Type.Optional(
    ThirdParty({
      serviceName: Type.Optional(Nullable(Type.String())),
      description: Type.Optional(Nullable(Type.String())),
      mimeType: Type.Optional(Nullable(Type.String())),
      reasons: Type.Optional(
        Type.Array(Type.String(), {
          description: "Dry run: why some offers cannot be paid, quoting them",
        }),
      ),
      paymentResponse: Type.Optional(
        Type.Unknown({ description: "PAYMENT-RESPONSE: what the seller says of the payment" }),
      ),
    }),
  ),
  verdict: Type.Optional(
    Type.Object({
      allowed: Type.Boolean(),
      code: Nullable(Type.String()),
      detail: Nullable(Type.String()),
      choice: Type.Array(Type.String(), {
        description: "Offer by offer, in the target's order: why it is chosen or not",
      }),
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
      availableAt: Nullable(Timestamp),
      nextReleaseAt: Nullable(Timestamp),
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
  price: Described(Amount, "USDC, of the page that was asked"),
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

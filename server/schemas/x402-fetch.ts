/** Wire types of x402-fetch. */
import { Type, type Static } from "typebox";
import { askingForApproval } from "./approvals.ts";
import {
  AddressOutput,
  Amount,
  Hex32,
  joinedAnswer,
  NetworkId,
  Nullable,
  PaymentOffer,
  priceIsMaximum,
  Strict,
  ThirdParty,
  TxHash,
  Id,
  Described,
  Detail,
  AtomicAmount,
  Timestamp,
} from "./common.ts";
import { PaymentEvidence } from "./payments.ts";
import { TaskId, taskOfCall } from "./tasks.ts";

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
            "Call this tool of the MCP server at url (streamable HTTP) and pay its price; the response is the tool's result",
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
          "A string is sent byte for byte; any other value as JSON, with its numbers unchanged",
      }),
    ),
    maxAmount: Type.Optional(Amount),
    dryRun: Type.Optional(
      Type.Boolean({
        description:
          "A quote: sends GET or HEAD without a body (for a tool: reads the server's list of tools), pays nothing, and returns price and verdict without content",
      }),
    ),
    maxAge: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: 86_400,
        description:
          "Seconds. A GET that this agent paid for within this time is returned again (`cached`) without paying; a new response is stored for that",
      }),
    ),
    ...taskOfCall,
    ...askingForApproval,
    timeoutMs: Type.Optional(
      Type.Integer({
        minimum: 100,
        maximum: 120_000,
        description:
          "For each response of the target (default 30000). A seller settles before it answers: with a short time you may pay and get nothing",
      }),
    ),
    detail: Type.Optional(Detail),
  },
  { description: "Exactly one of url and listingId" },
);
export type X402FetchRequest = Static<typeof X402FetchRequest>;

/** With `detail: "short"`, the members that may be missing are there only if they say something unusual. */
export const X402FetchAnswer = Type.Object({
  success: Type.Literal(true),
  paid: Type.Boolean(),
  amountPaid: Amount,
  txHash: Nullable(TxHash),
  channel: Type.Optional(
    Type.Object(
      { id: Hex32, balance: Amount, charged: Amount },
      {
        description:
          "Paid through this payment channel, without a transaction: what is in its escrow, and what the seller has charged in all",
      },
    ),
  ),
  text: Type.Optional(
    Type.String({
      description:
        "The target's content (untrusted) if it is text and not JSON: decoded with its declared charset, without a byte order mark",
    }),
  ),
  data: Type.Optional(
    Type.Unknown({
      description:
        "The target's content (untrusted) if it is JSON: as a value, with its numbers unchanged; null: no content",
    }),
  ),
  dataBase64: Type.Optional(
    Type.String({
      description:
        "The target's content if it is not text, or is text that JSON would make much longer (mostly control characters)",
    }),
  ),
  contentEncoding: Type.Optional(
    Type.String({
      description: "The remaining compression of dataBase64 (zstd, or an invalid gzip)",
    }),
  ),
  truncated: Type.Optional(
    Type.Boolean({ description: "The content is incomplete: this is the part that arrived" }),
  ),
  truncatedBy: Type.Optional(
    Type.Union(
      ["size", "connection", "timeout", "encoding"].map((why) => Type.Literal(why)),
      {
        description:
          "size: longer than maxBytes of a dry run; connection, timeout: the target stopped; encoding: the rest cannot be decompressed",
      },
    ),
  ),
  bytes: Type.Optional(Type.Integer({ description: "Received bytes, decompressed" })),
  headers: Type.Optional(
    Type.Record(Type.String(), Type.String(), {
      description:
        "From the target's response: content-type, location, link, retry-after, etag. Short: location and retry-after of a response that is no success",
    }),
  ),
  omittedHeaders: Type.Optional(
    Type.Array(Type.String(), { description: "Request headers that were not forwarded" }),
  ),
  note: Type.Optional(
    Type.String({ description: "An explanation if the response is incomplete or unusual" }),
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
          "Full. For a payment up to a maximum: the signed maximum and the amount charged on chain. For any payment: the seller's signed evidence",
      },
    ),
  ),
  task: Type.Optional(Described(TaskId, "The task in which the payment counts")),
  budgetReturnsAt: Type.Optional({
    ...Timestamp,
    description: "Until then the uncharged amount stays reserved",
  }),
  cached: Type.Optional(
    Type.Literal(true, { description: "Paid for earlier and returned again (maxAge)" }),
  ),
  cachedAt: Type.Optional(Timestamp),
  ageSeconds: Type.Optional(Type.Integer()),
  cachedPaymentId: Type.Optional(Type.String({ description: "The payment for this response" })),
  signedIn: Type.Optional(
    Type.Literal(true, {
      description:
        "The target accepted the wallet's signature for an earlier payment (sign-in-with-x)",
    }),
  ),
  source: Type.Optional(Type.String({ description: "Full: the requested URL" })),
  status: Type.Integer({
    description: "HTTP status of the target; for a tool call: 200, or 500 if it failed",
  }),
  contentType: Type.Optional(
    Nullable(Type.String(), "Of the target's response. Short: with dataBase64 only"),
  ),
  network: Type.Optional(Nullable(NetworkId, "Full: the network of the payment")),
  payTo: Type.Optional(Nullable(AddressOutput, "Full: who was paid")),
  paymentId: Nullable(Id),
  evidence: Nullable(
    Type.Union([Type.Literal("verified"), Type.Literal("not verified")]),
    "The seller's signed receipt, compared with the payment; null: it signed nothing. The chain is the proof of payment",
  ),
  delivered: Type.Boolean({
    description: "The target returned a success, whether or not it was paid",
  }),
  remaining: Described(Amount, "The rest of the daily limit"),
  ...joinedAnswer,
  dryRun: Type.Optional(Type.Literal(true)),
  maxBytes: Type.Optional(
    Type.Integer({ description: "Dry run: how much of a response is returned" }),
  ),
  price: Type.Optional(Nullable(Amount, "Dry run: the price; null: unknown")),
  ...priceIsMaximum,
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
      { description: "Dry run: the terms that would be paid, read and checked" },
    ),
  ),
  offers: Type.Optional(
    Type.Array(PaymentOffer, {
      description:
        "Full dry run: all offers of the target in its order, with the reason if one cannot be paid",
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
        Type.Unknown({ description: "PAYMENT-RESPONSE: the seller's statement about the payment" }),
      ),
    }),
  ),
  verdict: Type.Optional(
    Type.Object({
      allowed: Type.Boolean(),
      code: Nullable(Type.String()),
      detail: Nullable(Type.String()),
      choice: Type.Optional(
        Type.Array(Type.String(), {
          description: "Full: for each offer, in the target's order, why it was chosen or not",
        }),
      ),
      rules: Type.Array(
        Type.Object({
          rule: Type.String(),
          passed: Nullable(Type.Boolean()),
          detail: Type.Optional(
            Type.String({ description: "Short: only for a rule that did not pass" }),
          ),
          liftable: Type.Optional(
            Type.Literal(true, {
              description:
                "The rule refused, and the owner may allow this one payment: use requestApproval",
            }),
          ),
          availableAt: Type.Optional(
            Nullable(
              Type.String({
                description:
                  "For a rolling limit that refused: when this limit alone allows it; null: never",
              }),
            ),
          ),
        }),
      ),
      policy: Type.Optional(
        Nullable(
          Type.Record(Type.String(), Type.Unknown()),
          "The numbers of the rule that refused; short: only if one did",
        ),
      ),
      availableAt: Type.Optional(Nullable(Timestamp)),
      nextReleaseAt: Type.Optional(Nullable(Timestamp)),
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
  price: Described(Amount, "The price of the page, in USDC"),
  ...priceIsMaximum,
  asset: AddressOutput,
  network: NetworkId,
  x402Version: Type.Integer(),
  listed: Type.Array(AddressOutput, {
    description: "The payee that the agent may already pay at this site",
  }),
  thirdParty: ThirdParty({
    serviceName: Nullable(Type.String()),
    description: Nullable(Type.String()),
    mimeType: Nullable(Type.String()),
    resource: Nullable(Type.String({ description: "The site's description of the page" })),
  }),
});
export type SiteLookup = Static<typeof SiteLookup>;

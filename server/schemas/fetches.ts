/** Wire types of an agent's list of fetches. */
import { Type, type Static } from "typebox";
import { Nullable, Page, Timestamp, Id } from "./common.ts";

export const Fetch = Type.Object({
  id: Id,
  kind: Type.Union([Type.Literal("fetch"), Type.Literal("quote")]),
  method: Type.String(),
  origin: Type.String(),
  path: Type.String({ description: "Without the query, and without what looks like a key" }),
  listingId: Nullable(Id),
  outcome: Type.Union(
    ["running", "free", "paid", "quoted", "refused", "failed"].map((word) => Type.Literal(word)),
    { description: "running: not finished, or the process died" },
  ),
  code: Nullable(Type.String({ description: "The error code of a refused or failed fetch" })),
  status: Nullable(Type.Integer({ description: "The last status of the target" })),
  bytes: Type.Integer({ description: "Received from the target" }),
  keptBytes: Type.Integer({ description: "Stored for a repeat with the same Idempotency-Key" }),
  paymentId: Nullable(Id),
  signedIn: Type.Boolean({
    description:
      "The target accepted the wallet's signature for an earlier payment; nothing was paid",
  }),
  apiKeyId: Nullable(Id),
  requestId: Nullable(Id),
  createdAt: Timestamp,
  endedAt: Nullable(Timestamp),
});
export type FetchWire = Static<typeof Fetch>;
export const FetchPage = Page(Fetch);

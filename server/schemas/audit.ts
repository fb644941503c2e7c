import { Type } from "typebox";
import { AddressOutput, Nullable, Page, Strict, Timestamp, Id } from "./common.ts";

export const AuditEntry = Type.Object({
  id: Id,
  seq: Type.Integer({ description: "Position in the owner's chain, from 1 without gaps" }),
  hash: Type.String({ description: "SHA-256 of the entry before it and of this one, in hex" }),
  agentId: Nullable(Id),
  actor: AddressOutput,
  action: Type.String({ examples: ["agent.updated", "key.revoked", "session.created"] }),
  before: Nullable(Type.Record(Type.String(), Type.Unknown())),
  after: Nullable(Type.Record(Type.String(), Type.Unknown())),
  requestId: Nullable(Id),
  createdAt: Timestamp,
});

export const AuditPage = Page(AuditEntry);

export const AuditExportQuery = Strict({
  after: Type.Optional(
    Type.String({
      pattern: "^(0|[1-9][0-9]{0,14})$",
      description: "The last entry that you have; the export starts after it",
    }),
  ),
});

/** One line of an audit export. */
export const AuditLine = Type.Object({
  seq: Type.Integer(),
  prevHash: Type.String({ description: "The hash of the entry before it; 64 zeros for the first" }),
  hash: Type.String({
    description: "SHA-256 of prevHash's 32 bytes followed by body's UTF-8 bytes",
  }),
  body: Type.String({ description: "The entry: JSON, as the exact text that was hashed" }),
  order: Type.Optional(
    Type.Unknown({ description: "The EIP-712 typed data with the digest in the entry's proof" }),
  ),
});

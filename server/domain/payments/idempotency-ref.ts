import { createHash } from "node:crypto";
import { ApiError } from "../../errors.ts";

/** Names one request for good: the same key with another body is a different request, and refused. */
export interface IdempotencyRef {
  /** The agent's or the owner's id. */
  subjectId: string;
  route: string;
  key: string;
  bodyHash: Uint8Array;
}

const KEY_PATTERN = /^[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?$/;

/** Reads the Idempotency-Key header; undefined when there is none. */
export function readIdempotencyKey(header: string | string[] | undefined): string | undefined {
  if (header === undefined) return undefined;
  if (typeof header !== "string" || !KEY_PATTERN.test(header))
    throw new ApiError("idempotency_key_invalid", {
      detail: "Idempotency-Key must be 1 to 255 printable ASCII characters, sent once.",
    });
  return header;
}

/** The route is hashed too: one key used on two routes names two requests. */
export function hashBody(route: string, body: unknown): Uint8Array {
  return createHash("sha256")
    .update(`${route}\n${canonicalJson(body)}`)
    .digest();
}

/** JSON with sorted keys: the same object written in another order is the same request. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value)
      .filter(([, member]) => member !== undefined)
      .sort(([left], [right]) => (left < right ? -1 : 1))
      .map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member)}`);
    return `{${members.join(",")}}`;
  }
  return JSON.stringify(value) ?? "null";
}

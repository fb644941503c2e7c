/**
 * Binds a payment to the seller's route. Servers of mppx may require it (`routeBinding: "required"`), and accept it
 * otherwise: the nonce of the authorization is the hash of the terms, the resource and the seller's extension `mppx`
 * with a salt of ours. With the salt the nonce is new for each payment, as a random one is.
 */
import { createHash, randomBytes } from "node:crypto";
import { isRecord } from "../../core/foreign-text.ts";
import { findScheme, TOKEN_SCHEME } from "../../schemes/index.ts";
import { canonicalJson } from "../guardrails/types.ts";
import type { Offer, OfferedTerms, RouteBinding } from "./terms.ts";

const EXTENSION = "mppx";
/** It is stored with the payment and repeated in a header, and servers reject headers over 16 KiB. */
const MAX_BOUND_BYTES = 4 * 1024;

/** Undefined where the seller announces no such binding, or the scheme has no nonce of this kind. */
export function bindRoute(
  { scheme, extra, raw }: OfferedTerms,
  { resource, extensions }: Pick<Offer, "resource" | "extensions">,
): RouteBinding | undefined {
  const declared = extensions?.[EXTENSION];
  const info = isRecord(declared) ? declared["info"] : undefined;
  if (!resource || !isRecord(declared) || !isRecord(info)) return undefined;
  if (findScheme(scheme, extra) !== TOKEN_SCHEME) return undefined;
  const nonce = randomBytes(32).toString("hex");
  const salted = { [EXTENSION]: { ...declared, info: { ...info, nonce } } };
  const parts = [raw, resource, salted].map(canonicalJson);
  if (Buffer.byteLength(parts.join("")) > MAX_BOUND_BYTES) return undefined;
  const hashed = parts.map((part) => Buffer.from(part).toString("base64url")).join("|");
  return {
    nonce: `0x${createHash("sha256").update(hashed).digest("hex")}`,
    extensions: salted,
  };
}

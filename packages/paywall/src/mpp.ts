/**
 * Requests the same price over MPP beside x402: `WWW-Authenticate: Payment`, method `evm`, intent `charge`.
 * An HMAC (the same as mppx computes) binds a challenge to its charge, resource and expiry, so nothing is
 * stored, and replicas with the same secret accept each other's challenges, also after a restart. The
 * credential contains an EIP-3009 authorization, which from there on is handled as any other proof: the
 * facilitator settles it, once.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { PaymentRequired, PaymentRequirements } from "@x402/core/types";
import type { PaymentRequiredAnswer } from "./answers.ts";
import { isRecord } from "./foreign-json.ts";
import {
  borderedHash,
  CHARGE,
  challengeHash,
  fromBase64Url,
  payerOf,
  toBase64Url,
  type PaymentChallenge,
} from "./mpp-wire.ts";
import type { Proof } from "./protocol.ts";
import type { PaidRequest } from "./resource.ts";
import { isForVersion1 } from "./scheme.ts";

export interface MppOptions {
  /** At least 32 bytes, the same at every replica. */
  secret: string;
  /** The realm, which clients compare with the host they sent the request to. Default: that host. */
  realm?: string;
}

const MIN_SECRET_BYTES = 32;
const QUOTABLE = /^[\x21\x23-\x5b\x5d-\x7e]+$/;
const USDC_DECIMALS = 6;
/** The members are in the order of canonical JSON (RFC 8785), because clients serialize it again. */
const chargeRequest = ({ amount, asset, network, payTo }: PaymentRequirements): object => ({
  amount,
  currency: asset,
  methodDetails: {
    chainId: chainIdOf(network),
    credentialTypes: ["authorization"],
    decimals: USDC_DECIMALS,
  },
  recipient: payTo,
});

const chainIdOf = (network: string): number => Number(network.replace("eip155:", ""));

const malformed = (reason: string): Proof => ({ kind: "malformed", reason });

export class MppCharges {
  readonly #secret: string;
  readonly #realm: string | undefined;

  constructor({ secret, realm }: MppOptions) {
    if (Buffer.byteLength(secret) < MIN_SECRET_BYTES)
      throw new Error(`the secret of mpp must have at least ${MIN_SECRET_BYTES} bytes`);
    if (realm !== undefined && !QUOTABLE.test(realm))
      throw new Error(
        "the realm of mpp must be printable ASCII without spaces, quotes and backslashes",
      );
    this.#secret = secret;
    this.#realm = realm;
  }

  /** Adds one challenge for each entry of the terms that MPP can express. */
  withChallenges(unpaid: PaymentRequiredAnswer, request: PaidRequest): PaymentRequiredAnswer {
    const challenges = unpaid.required.accepts
      .filter(isForVersion1)
      .map((terms) => asHeader(this.#challenge(terms, request)));
    if (challenges.length === 0) return unpaid;
    return { ...unpaid, headers: { ...unpaid.headers, "www-authenticate": challenges.join(", ") } };
  }

  #challenge(terms: PaymentRequirements, request: PaidRequest): PaymentChallenge {
    const unbound = {
      ...CHARGE,
      realm: this.#realmOf(request),
      request: toBase64Url(chargeRequest(terms)),
      expires: new Date(Date.now() + terms.maxTimeoutSeconds * 1_000).toISOString(),
      // The salt makes challenges unique: one payer may send two requests in a millisecond, and a challenge
      // can be paid once.
      opaque: toBase64Url({
        resource: resourceOf(request),
        salt: randomBytes(12).toString("base64url"),
      }),
    };
    return { id: this.#idOf(unbound), ...unbound };
  }

  #realmOf({ url }: PaidRequest): string {
    return this.#realm ?? new URL(url).hostname;
  }

  /** The same construction as mppx, so that its clients and validators accept our challenges. */
  #idOf(challenge: Omit<PaymentChallenge, "id">): string {
    const { realm, method, intent, request, expires = "", digest = "", opaque = "" } = challenge;
    return createHmac("sha256", this.#secret)
      .update([realm, method, intent, request, expires, digest, opaque].join("|"))
      .digest("base64url");
  }

  /** Undefined where the request has no credential. */
  proofIn(request: PaidRequest, required: PaymentRequired): Proof | undefined {
    const { authorization, ...others } = request.headers;
    const token = typeof authorization === "string" ? paymentIn(authorization) : undefined;
    if (token === undefined) return undefined;
    if (others["payment-signature"] !== undefined || others["x-payment"] !== undefined)
      return malformed("The request has two proofs of payment. Send one.");
    const credential = fromBase64Url(token);
    const { challenge, payload, source } = isRecord(credential) ? credential : {};
    if (!isChallenge(challenge) || !isRecord(payload))
      return malformed("The credential is not readable.");
    const problem = this.#challengeProblem(challenge, request);
    if (problem !== undefined) return malformed(problem);
    const accepted = required.accepts.find(
      (terms) => isForVersion1(terms) && toBase64Url(chargeRequest(terms)) === challenge.request,
    );
    if (!accepted) return malformed("The challenge does not match the current price.");
    return proofOf(accepted, { challenge, payload, source });
  }

  #challengeProblem(challenge: PaymentChallenge, request: PaidRequest): string | undefined {
    const id = Buffer.from(this.#idOf(challenge));
    const received = Buffer.from(challenge.id);
    if (id.length !== received.length || !timingSafeEqual(id, received))
      return "This server did not issue the challenge.";
    const bound = fromBase64Url(challenge.opaque ?? "");
    if (
      challenge.method !== CHARGE.method ||
      challenge.intent !== CHARGE.intent ||
      challenge.realm !== this.#realmOf(request) ||
      !isRecord(bound) ||
      bound["resource"] !== resourceOf(request)
    )
      return "The challenge is for a different resource.";
    return Date.parse(challenge.expires ?? "") > Date.now()
      ? undefined
      : "The challenge has expired.";
  }
}

/**
 * The proof in x402's form. The facilitator verifies the signature and what it is for, as for any other
 * proof.
 */
function proofOf(
  accepted: PaymentRequirements,
  credential: { challenge: PaymentChallenge; payload: Record<string, unknown>; source: unknown },
): Proof {
  const { challenge, source } = credential;
  const { type, signature, ...authorization } = credential.payload;
  if (type !== "authorization")
    return malformed("The credential must have the type authorization.");
  const nonce = String(authorization["nonce"]).toLowerCase();
  if (nonce !== challengeHash(challenge) && nonce !== borderedHash(challenge))
    return malformed("The authorization's nonce is not the hash of the challenge.");
  const payer = payerOf(chainIdOf(accepted.network), String(authorization["from"]));
  const isPayers = typeof source === "string" && source.toLowerCase() === payer.toLowerCase();
  if (source !== undefined && !isPayers)
    return malformed("The credential's source is not the payer.");
  const payload = { x402Version: 2, accepted, payload: { signature, authorization } };
  return { kind: "shown", version: "mpp", payload };
}

/** The token of the scheme `Payment` in an `Authorization` header. */
export const paymentIn = (authorization: string): string | undefined =>
  authorization
    .split(",")
    .map((scheme) => /^\s*payment\s+(\S+)\s*$/i.exec(scheme)?.[1])
    .find((token) => token !== undefined);

const resourceOf = ({ method, route, path, url }: PaidRequest): string =>
  createHash("sha256").update(JSON.stringify({ method, route, path, url })).digest("base64url");

/**
 * No value contains a quote or a backslash: ours are base64url and fixed words, and the realm was validated.
 */
const asHeader = (challenge: PaymentChallenge): string =>
  `Payment ${Object.entries(challenge)
    .map(([name, value]) => `${name}="${value}"`)
    .join(", ")}`;

const REQUIRED = ["id", "realm", "method", "intent", "request", "expires", "opaque"];

function isChallenge(value: unknown): value is PaymentChallenge {
  if (!isRecord(value) || (value["digest"] ?? value["header"]) !== undefined) return false;
  return REQUIRED.every((name) => typeof value[name] === "string");
}

/**
 * The same price, asked by MPP beside x402: `WWW-Authenticate: Payment`, method `evm`, intent `charge`. A challenge is
 * bound to what it asks, to its resource and its time by an HMAC, as mppx binds its own; so nothing is kept, replicas
 * with one secret agree, and a restart forgets nothing. What answers it is an EIP-3009 authorization, which from there
 * on is any other proof: the facilitator settles it, once.
 */
import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { PaymentRequired, PaymentRequirements, SettleResponse } from "@x402/core/types";
import type { PaymentRequiredAnswer } from "./answers.ts";
import type { PaidRequest } from "./charge.ts";
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
import { isForVersion1 } from "./scheme.ts";

export interface MppOptions {
  /** At least 32 bytes, the same at every replica. */
  secret: string;
  /** Who asks, as clients compare it with the host they asked; by default that host. */
  realm?: string;
}

const MIN_SECRET_BYTES = 32;
const QUOTABLE = /^[\x21\x23-\x5b\x5d-\x7e]+$/;
const USDC_DECIMALS = 6;
/** In the order of the canonical JSON (RFC 8785), which clients write it in again. */
const asked = ({ amount, asset, network, payTo }: PaymentRequirements): object => ({
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

  /** One challenge for each entry of the terms that MPP has a word for. */
  beside(unpaid: PaymentRequiredAnswer, request: PaidRequest): PaymentRequiredAnswer {
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
      request: toBase64Url(asked(terms)),
      expires: new Date(Date.now() + terms.maxTimeoutSeconds * 1_000).toISOString(),
      // The salt, because one payer may ask twice in a millisecond, and one challenge is paid once.
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

  /** mppx writes and reads the same: its clients and validators know our challenges for their own kind. */
  #idOf(challenge: Omit<PaymentChallenge, "id">): string {
    const { realm, method, intent, request, expires = "", digest = "", opaque = "" } = challenge;
    return createHmac("sha256", this.#secret)
      .update([realm, method, intent, request, expires, digest, opaque].join("|"))
      .digest("base64url");
  }

  /** Undefined where no credential is shown. */
  proofIn(request: PaidRequest, required: PaymentRequired): Proof | undefined {
    const { authorization, ...others } = request.headers;
    const shown = typeof authorization === "string" ? paymentIn(authorization) : undefined;
    if (shown === undefined) return undefined;
    if (others["payment-signature"] !== undefined || others["x-payment"] !== undefined)
      return malformed("The request has two proofs of payment. Send one.");
    const credential = fromBase64Url(shown);
    const { challenge, payload, source } = isRecord(credential) ? credential : {};
    if (!isChallenge(challenge) || !isRecord(payload))
      return malformed("The credential is not readable.");
    const why = this.#whyNotOurs(challenge, request);
    if (why !== undefined) return malformed(why);
    const accepted = required.accepts.find(
      (terms) => isForVersion1(terms) && toBase64Url(asked(terms)) === challenge.request,
    );
    if (!accepted) return malformed("The challenge does not match the current price.");
    return proofOf(accepted, { challenge, payload, source });
  }

  #whyNotOurs(challenge: PaymentChallenge, request: PaidRequest): string | undefined {
    const id = Buffer.from(this.#idOf(challenge));
    const shown = Buffer.from(challenge.id);
    if (id.length !== shown.length || !timingSafeEqual(id, shown))
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

/** As x402 has it. That the signature is good, and what it is for, is the facilitator's to say, as of any other proof. */
function proofOf(
  accepted: PaymentRequirements,
  shown: { challenge: PaymentChallenge; payload: Record<string, unknown>; source: unknown },
): Proof {
  const { challenge, source } = shown;
  const { type, signature, ...authorization } = shown.payload;
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

/** On success only: what is not settled is said in the answer's body. */
export const receiptHeader = (settled: SettleResponse): Record<string, string> => {
  if (!settled.success) return {};
  const { transaction: reference } = settled;
  const receipt = { method: CHARGE.method, reference, status: "success" };
  return { "payment-receipt": toBase64Url({ ...receipt, timestamp: new Date().toISOString() }) };
};

const paymentIn = (authorization: string): string | undefined =>
  authorization
    .split(",")
    .map((scheme) => /^\s*payment\s+(\S+)\s*$/i.exec(scheme)?.[1])
    .find((shown) => shown !== undefined);

const resourceOf = ({ method, route, path, url }: PaidRequest): string =>
  createHash("sha256").update(JSON.stringify({ method, route, path, url })).digest("base64url");

/** None of them has a quote or a backslash in it: ours are base64url and words, and the realm was looked at. */
const asHeader = (challenge: PaymentChallenge): string =>
  `Payment ${Object.entries(challenge)
    .map(([name, value]) => `${name}="${value}"`)
    .join(", ")}`;

const REQUIRED = ["id", "realm", "method", "intent", "request", "expires", "opaque"];

function isChallenge(value: unknown): value is PaymentChallenge {
  if (!isRecord(value) || (value["digest"] ?? value["header"]) !== undefined) return false;
  return REQUIRED.every((name) => typeof value[name] === "string");
}

/**
 * Reads MPP challenges (`WWW-Authenticate: Payment` of a 402) as payment terms. The seller chooses much here,
 * even the nonce of the authorization.
 * A challenge that is not clearly a charge for this request is refused with a reason, and kept among the terms
 * so that the reason is reported.
 */
import { createHash } from "node:crypto";
import {
  CHARGE,
  challengeHash,
  fromBase64Url,
  type PaymentChallenge,
} from "../../../packages/paywall/src/mpp-wire.ts";
import { isRecord, plainText, quoted } from "../../core/foreign-text.ts";
import { MAX_VALID_SECONDS } from "../payments/steps.ts";
import type { OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { TargetRequest } from "./request.ts";
import { CHALLENGE_FAULTS, type ChallengeFault, type OfferedTerms } from "./terms.ts";

/** The request that was sent: a challenge must be for this request. */
type RequestedCharge = Pick<TargetRequest, "url" | "body">;

/** Its credential is half as long again, and servers reject headers over 16 KiB. */
const MAX_CHALLENGE_BYTES = 6 * 1024;
const MAX_HEADER_BYTES = 32 * 1024;
const MAX_CHALLENGES = 64;
/** Settlement takes some seconds of the challenge's validity. */
const MIN_LIFE_SECONDS = 10;
const CREDENTIAL_HEADERS: ReadonlySet<string> = new Set(["authorization", "payment-authorization"]);

/**
 * Returns the terms of all Payment challenges, payable or with the reason why not. Empty without such a
 * challenge.
 */
export function readCharges(
  header: OutboundResponse["headers"][string],
  requested: RequestedCharge,
  nowMs: number,
): OfferedTerms[] {
  const text = [header ?? []].flat().join(", ");
  if (!/\bpayment\b/i.test(text)) return [];
  if (text.length > MAX_HEADER_BYTES)
    return [refused("challenge_too_long", `WWW-Authenticate exceeds ${MAX_HEADER_BYTES} bytes`)];
  const challenges = readChallenges(text);
  if (!challenges) return [refused("challenge_unreadable", "WWW-Authenticate cannot be parsed")];
  if (challenges.length > MAX_CHALLENGES)
    return [refused("challenge_too_long", `it sends more than ${MAX_CHALLENGES} challenges`)];
  const ids = challenges.map(({ params }) => params["id"]);
  return challenges.map(({ params, why }) => {
    if (why !== undefined) return refused("challenge_unreadable", why);
    const terms = readCharge(params);
    const { challenge } = terms;
    if (terms.refused || !challenge) return terms;
    const fault =
      ids.filter((id) => id === challenge.id).length > 1
        ? faultOf("challenge_repeated", `several challenges have the id ${quoted(challenge.id)}`)
        : whyNotFor(challenge, requested, nowMs);
    if (fault) return { ...terms, refused: fault };
    const leftSeconds = secondsLeft(challenge, nowMs);
    return { ...terms, maxTimeoutSeconds: Math.min(leftSeconds, terms.maxTimeoutSeconds) };
  });
}

/** Reads a challenge that we answered before, from its stored form. It may have expired. */
export const chargeAgain = (stored: Record<string, unknown>): OfferedTerms | undefined => {
  const terms = readCharge(stored as Params);
  return terms.refused ? undefined : terms;
};

const faultOf = (code: ChallengeFault["code"], quoting: string): ChallengeFault => ({
  code,
  quoting,
});

const NOTHING: OfferedTerms = {
  protocol: "mpp",
  scheme: CHARGE.intent,
  network: "",
  amount: "",
  asset: "",
  payTo: "",
  maxTimeoutSeconds: 0,
  extra: {},
  raw: {},
};

const refused = (code: ChallengeFault["code"], quoting: string): OfferedTerms => ({
  ...NOTHING,
  refused: faultOf(code, quoting),
});

/** Checks the challenge itself. Amount and addresses are checked later, like those of all terms. */
function readCharge(params: Params): OfferedTerms {
  const { method, intent, id, realm, request, expires, digest, header, opaque } = params;
  if (method !== CHARGE.method || intent !== CHARGE.intent)
    return refused(
      "challenge_unsupported",
      `MPP's ${quoted(`${method}/${intent}`)} is not supported`,
    );
  if (!id || !realm || !request)
    return refused("challenge_unreadable", "its challenge lacks an id, a realm or a request");
  const challenge: PaymentChallenge = {
    id,
    realm,
    method,
    intent,
    request,
    ...(expires !== undefined && { expires }),
    ...(digest !== undefined && { digest }),
    ...(header !== undefined && { header }),
    ...(opaque !== undefined && { opaque }),
  };
  const written = Object.values(challenge).join("");
  if (written.length > MAX_CHALLENGE_BYTES)
    return refused("challenge_too_long", `its challenge exceeds ${MAX_CHALLENGE_BYTES} bytes`);
  // It is stored, repeated and hashed, so it must not contain characters that any of these steps could change.
  if (!/^[\x20-\x7e]+$/.test(written))
    return refused("challenge_unreadable", "its challenge is not visible ASCII");
  if (header !== undefined && !CREDENTIAL_HEADERS.has(header.toLowerCase()))
    return refused("challenge_unreadable", `it requires the proof in the header ${quoted(header)}`);
  const requested = fromBase64Url(request);
  const details = isRecord(requested) ? requested["methodDetails"] : undefined;
  if (!isRecord(requested) || !isRecord(details))
    return refused("challenge_unreadable", "the request in its challenge cannot be parsed");
  const { credentialTypes, splits, chainId, decimals } = details;
  // If omitted, it means credential types that we do not create.
  if (!Array.isArray(credentialTypes) || !credentialTypes.includes("authorization"))
    return refused(
      "challenge_credential_types",
      `credential types ${quoted(JSON.stringify(credentialTypes))} are not supported`,
    );
  if (splits !== undefined && !(Array.isArray(splits) && splits.length === 0))
    return refused("challenge_splits", CHALLENGE_FAULTS.challenge_splits);
  const text = (name: string): string => plainText(requested[name]) ?? "";
  return {
    ...NOTHING,
    network: Number.isSafeInteger(chainId) ? `eip155:${Number(chainId)}` : "",
    amount: typeof requested["amount"] === "string" ? requested["amount"] : "",
    asset: text("currency"),
    payTo: text("recipient"),
    maxTimeoutSeconds: MAX_VALID_SECONDS,
    extra: decimals === undefined ? {} : { decimals },
    raw: { ...challenge },
    challenge,
    nonce: challengeHash(challenge),
  };
}

/** Checks that the challenge is for this request, and has not expired. */
function whyNotFor(
  challenge: PaymentChallenge,
  requested: RequestedCharge,
  nowMs: number,
): ChallengeFault | undefined {
  const { realm, expires, digest } = challenge;
  if (!isOf(realm, requested.url))
    return faultOf(
      "challenge_other_host",
      `its challenge has the realm ${quoted(realm)}, but the requested host is ${quoted(requested.url.host)}`,
    );
  const left = secondsLeft(challenge, nowMs);
  if (!(left >= MIN_LIFE_SECONDS))
    return faultOf("challenge_expired", `its challenge expires at ${quoted(expires)}`);
  if (digest !== undefined && digest !== digestOf(requested.body))
    return faultOf("challenge_other_body", CHALLENGE_FAULTS.challenge_other_body);
  return undefined;
}

/** The host of the request, or a parent domain. Sellers write the realm with or without the port. */
function isOf(realm: string, { hostname, host, origin }: URL): boolean {
  const name = realm.toLowerCase();
  return (
    [hostname, host, origin].includes(name) || (name.includes(".") && hostname.endsWith(`.${name}`))
  );
}

const secondsLeft = ({ expires }: PaymentChallenge, nowMs: number): number =>
  expires === undefined ? MAX_VALID_SECONDS : Math.floor((Date.parse(expires) - nowMs) / 1_000);

const digestOf = (body: string | undefined): string =>
  `sha-256=${createHash("sha256")
    .update(body ?? "")
    .digest("base64")}`;

/** RFC 9110: challenges of any scheme, separated by commas, as their parameters are. */

type Params = Partial<Record<string, string>>;

const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const PARAMETER = new RegExp(`^(${TOKEN})\\s*=\\s*(?:"((?:[^"\\\\]|\\\\.)*)"|([^\\s",]+))$`, "s");
const CHALLENGE = new RegExp(`^(${TOKEN})(?:\\s+(\\S.*))?$`, "s");

/**
 * Returns the challenges of the Payment scheme, with the reason if one is malformed. Undefined: the whole
 * header is malformed.
 */
function readChallenges(text: string): { params: Params; why?: string }[] | undefined {
  const items = splitAtCommas(text);
  if (!items) return undefined;
  const found: { isPayment: boolean; params: Params; why?: string }[] = [];
  for (const item of items) {
    let parameter = PARAMETER.exec(item);
    if (!parameter) {
      const [, scheme = "", rest] = CHALLENGE.exec(item) ?? [];
      if (scheme === "") return undefined;
      found.push({ isPayment: scheme.toLowerCase() === "payment", params: {} });
      parameter = rest === undefined ? null : PARAMETER.exec(rest);
      // Credentials of other schemes may be a single token.
      if (!parameter) continue;
    }
    const current = found.at(-1);
    if (!current) return undefined;
    const [, name = "", quotedText, plain = ""] = parameter;
    const key = name.toLowerCase();
    if (Object.hasOwn(current.params, key)) current.why = `its challenge has ${quoted(key)} twice`;
    current.params[key] = quotedText === undefined ? plain : unescaped(quotedText);
  }
  return found.filter(({ isPayment }) => isPayment);
}

function splitAtCommas(text: string): string[] | undefined {
  const items: string[] = [];
  let isQuoted = false;
  let start = 0;
  for (let at = 0; at <= text.length; at += 1) {
    const char = text[at];
    if (isQuoted && char === "\\") at += 1;
    else if (char === '"') isQuoted = !isQuoted;
    else if (char === undefined || (char === "," && !isQuoted)) {
      items.push(text.slice(start, at).trim());
      start = at + 1;
    }
  }
  return isQuoted ? undefined : items.filter((item) => item !== "");
}

/** Characters beyond Latin-1 are written as `\uXXXX`, an escape of the mppx library. */
const unescaped = (text: string): string =>
  text.replaceAll(/\\(?:u([0-9a-fA-F]{4})|(.))/gs, (_all, code: string | undefined, char: string) =>
    code === undefined ? char : String.fromCharCode(Number.parseInt(code, 16)),
  );

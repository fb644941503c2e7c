/**
 * What a 402 asks for in `WWW-Authenticate: Payment` (MPP), as terms like any other. A seller chooses much here, the
 * nonce of the authorization among it: whatever is not plainly a charge of this request, in words we can repeat, is
 * refused with its reason, and stays among the terms so that the reason is told.
 */
import { createHash } from "node:crypto";
import {
  CHARGE,
  challengeHash,
  fromBase64Url,
  type PaymentChallenge,
} from "../../../packages/paywall/src/mpp-wire.ts";
import { isRecord, parseAddress, quoted } from "../../core/foreign-text.ts";
import { USDC_DECIMALS } from "../../core/money.ts";
import { MAX_VALID_SECONDS } from "../payments/agent-payments.ts";
import type { OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { OfferedTerms } from "./offer.ts";
import type { TargetRequest } from "./request.ts";

/** The request that was answered: a challenge is for it, or for nothing. */
type AskedFor = Pick<TargetRequest, "url" | "body">;

/** Its credential is longer by a half, and servers refuse 16 KiB of headers. */
const MAX_CHALLENGE_BYTES = 6 * 1024;
const MAX_HEADER_BYTES = 32 * 1024;
const MAX_CHALLENGES = 64;
/** What settles it wants some seconds of life in it. */
const MIN_LIFE_SECONDS = 10;
const CREDENTIAL_HEADERS: ReadonlySet<string> = new Set(["authorization", "payment-authorization"]);

/** The terms of all its Payment challenges, payable or with the reason why not; none where it has no such challenge. */
export function readCharges(
  header: OutboundResponse["headers"][string],
  asked: AskedFor,
  nowMs: number,
): OfferedTerms[] {
  const text = [header ?? []].flat().join(", ");
  if (!/\bpayment\b/i.test(text)) return [];
  if (text.length > MAX_HEADER_BYTES)
    return [refused(`its WWW-Authenticate is longer than ${MAX_HEADER_BYTES} bytes`)];
  const challenges = readChallenges(text);
  if (!challenges) return [refused("its WWW-Authenticate header cannot be parsed")];
  if (challenges.length > MAX_CHALLENGES)
    return [refused(`it sends more than ${MAX_CHALLENGES} payment challenges`)];
  const isRepeated = ({ id }: Params): boolean =>
    challenges.filter((other) => typeof other !== "string" && other["id"] === id).length > 1;
  return challenges.map((params) => {
    if (typeof params === "string") return refused(params);
    const terms = readCharge(params);
    if (terms.refused !== undefined || !terms.challenge) return terms;
    const why = isRepeated(params)
      ? "several challenges have the same id"
      : whyNotFor(terms.challenge, asked, nowMs);
    if (why !== undefined) return { ...terms, refused: why };
    const leftSeconds = secondsLeft(terms.challenge, nowMs);
    return { ...terms, maxTimeoutSeconds: Math.min(leftSeconds, terms.maxTimeoutSeconds) };
  });
}

/** A challenge we answered before, as it was stored: its time has not to be now. */
export const chargeAgain = (stored: Record<string, unknown>): OfferedTerms | undefined => {
  const terms = readCharge(stored as Params);
  return terms.refused === undefined ? terms : undefined;
};

const refused = (why: string): OfferedTerms => ({
  protocol: "mpp",
  scheme: CHARGE.intent,
  network: "",
  amount: "",
  asset: "",
  payTo: "",
  maxTimeoutSeconds: 0,
  extra: {},
  raw: {},
  refused: why,
});

/** What the challenge itself says, whenever and wherever it is read. */
function readCharge(params: Params): OfferedTerms {
  const { method, intent, id, realm, request, expires, digest, header, opaque } = params;
  if (method !== CHARGE.method || intent !== CHARGE.intent)
    return refused(`payment method ${quoted(`${method}/${intent}`)} is not supported`);
  if (!id || !realm || !request) return refused("its challenge has no id, realm or request");
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
    return refused(`its challenge is longer than ${MAX_CHALLENGE_BYTES} bytes`);
  // It is stored, repeated and hashed: nothing that any of these could change.
  if (!/^[\x20-\x7e]+$/.test(written)) return refused("its challenge is not visible ASCII");
  const asked = fromBase64Url(request);
  const details = isRecord(asked) ? asked["methodDetails"] : undefined;
  if (!isRecord(asked) || !isRecord(details))
    return refused("what its challenge asks for cannot be parsed");
  const why = whyNotCharge(challenge, asked, details);
  if (why !== undefined) return refused(why);
  return {
    protocol: "mpp",
    scheme: CHARGE.intent,
    network: `eip155:${details["chainId"] as number}`,
    amount: asked["amount"] as string,
    asset: asked["currency"] as string,
    payTo: asked["recipient"] as string,
    maxTimeoutSeconds: MAX_VALID_SECONDS,
    extra: {},
    raw: { ...challenge },
    challenge,
    nonce: challengeHash(challenge),
  };
}

function whyNotCharge(
  { header }: PaymentChallenge,
  asked: Record<string, unknown>,
  details: Record<string, unknown>,
): string | undefined {
  const { credentialTypes, splits, chainId, decimals } = details;
  if (typeof asked["amount"] !== "string") return "the amount of its challenge is no text";
  // Left out, it means credentials that we do not make.
  if (!Array.isArray(credentialTypes) || !credentialTypes.includes("authorization"))
    return `credential types ${quoted(JSON.stringify(credentialTypes))} are not supported; \`authorization\` is`;
  if (splits !== undefined && !(Array.isArray(splits) && splits.length === 0))
    return "it splits the payment among several payees, which one authorization cannot";
  if (!Number.isSafeInteger(chainId) || (chainId as number) <= 0)
    return `chainId ${quoted(chainId)} is no chain`;
  if (decimals !== undefined && decimals !== USDC_DECIMALS) return "decimals are not those of USDC";
  const currency = parseAddress(asked["currency"]);
  if (!currency.ok) return `currency ${quoted(asked["currency"])} ${currency.reason}`;
  const recipient = parseAddress(asked["recipient"]);
  if (!recipient.ok) return `recipient ${quoted(asked["recipient"])} ${recipient.reason}`;
  if (header !== undefined && !CREDENTIAL_HEADERS.has(header.toLowerCase()))
    return `it wants the proof in a header ${quoted(header)}, which is not one for credentials`;
  return undefined;
}

/** For this request, and now. */
function whyNotFor(
  challenge: PaymentChallenge,
  asked: AskedFor,
  nowMs: number,
): string | undefined {
  const { realm, expires, digest } = challenge;
  if (!isOf(realm, asked.url))
    return `its challenge is of the realm ${quoted(realm)}, and ${quoted(asked.url.host)} was asked`;
  if (expires !== undefined && Number.isNaN(Date.parse(expires)))
    return `its challenge expires at ${quoted(expires)}, which is no time`;
  const left = secondsLeft(challenge, nowMs);
  if (left <= 0) return `its challenge expired at ${quoted(expires)}`;
  if (left < MIN_LIFE_SECONDS) return `its challenge expires in ${left} s, which is too soon`;
  if (digest !== undefined && digest !== digestOf(asked.body))
    return "its challenge is for another body than the one that was sent";
  return undefined;
}

/** The host that was asked, or a domain it is in; sellers behind a port write it with and without. */
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

/** RFC 9110, section 11: challenges of any scheme, separated by the same commas as their parameters. */

type Params = Partial<Record<string, string>>;

const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+";
const PARAMETER = new RegExp(`^(${TOKEN})\\s*=\\s*(?:"((?:[^"\\\\]|\\\\.)*)"|([^\\s",]+))$`, "s");
const CHALLENGE = new RegExp(`^(${TOKEN})(?:\\s+(\\S.*))?$`, "s");

/** Those of the Payment scheme; a sentence stands for one that is badly written. Undefined: the header is. */
function readChallenges(text: string): (Params | string)[] | undefined {
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
      // Credentials of other schemes may be one word.
      if (!parameter) continue;
    }
    const current = found.at(-1);
    if (!current) return undefined;
    const [, name = "", quotedText, plain = ""] = parameter;
    const key = name.toLowerCase();
    if (Object.hasOwn(current.params, key)) current.why = `its challenge says ${quoted(key)} twice`;
    current.params[key] = quotedText === undefined ? plain : unescaped(quotedText);
  }
  return found.filter(({ isPayment }) => isPayment).map(({ params, why }) => why ?? params);
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

/** Characters beyond Latin-1 are written as `\uXXXX`, which is mppx's own. */
const unescaped = (text: string): string =>
  text.replaceAll(/\\(?:u([0-9a-fA-F]{4})|(.))/gs, (_all, code: string | undefined, char: string) =>
    code === undefined ? char : String.fromCharCode(Number.parseInt(code, 16)),
  );

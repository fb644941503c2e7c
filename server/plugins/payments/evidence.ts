/**
 * Documents that a seller signed for a payment (x402 extension offer-and-receipt): its offer in the 402, and
 * its receipt with the response.
 * They are checked against the payment and stored. Nothing is fetched to check them, and a bad one fails
 * nothing: the chain proves the payment, this only shows what the seller signed.
 */
import { KeyObject } from "node:crypto";
import {
  extractJWSHeader,
  extractPublicKeyFromKid,
  OFFER_RECEIPT,
  verifyOfferSignatureEIP712,
  verifyOfferSignatureJWS,
  verifyReceiptSignatureEIP712,
  verifyReceiptSignatureJWS,
  type EIP712SignedOffer,
  type EIP712SignedReceipt,
  type JWSSignedOffer,
  type JWSSignedReceipt,
} from "@x402/extensions/offer-receipt";
import { bytesToHex, getAddress, type Address, type Hex } from "viem";
import { publicKeyToAddress } from "viem/accounts";
import { isRecord, plainJson, plainWords } from "../../core/foreign-text.ts";
import type { PaymentEvidence } from "../../schemas/payments.ts";

/** The payment, according to the chain and our own records. */
interface PaidFor {
  /** The requested URL, or the name of the tool at its server. */
  url: URL;
  wallet: Address;
  /** Every name of its network, in both versions of x402. */
  networkNames: readonly string[];
  payTo: Address;
  /** The terms as the seller wrote them. */
  terms: { scheme: string; network: string; asset: string; payTo: string; amount: string };
  txHash: Hex;
  /** When the request was sent, and when the response arrived. */
  fromMs: number;
  toMs: number;
}

/** A signed document and the result of its check. Only `signed` and `key` contain third-party text. */
interface KeptPiece {
  verified: boolean;
  why?: string;
  format?: "eip712" | "jws";
  /** The address that signed it or belongs to its key, if known. */
  signer?: Address;
  /** Only for receipts. */
  issuedAt?: number;
  transaction?: Hex;
  /** The key id of the signature. */
  key?: string;
  signed?: unknown;
}

export interface KeptEvidence {
  verified: boolean;
  why?: string;
  offer?: KeptPiece;
  receipt?: KeptPiece;
}

/** A signed offer or receipt is a few hundred bytes. */
const MAX_SIGNED_BYTES = 4 * 1024;
const MAX_OFFERS = 64;
const MAX_KEY_LENGTH = 512;
/** Tolerance for differing clocks. */
const SLACK_MS = 5 * 60_000;

const infoOf = (extensions: unknown): Record<string, unknown> | undefined => {
  const extension = isRecord(extensions) ? extensions[OFFER_RECEIPT] : undefined;
  return isRecord(extension) && isRecord(extension["info"]) ? extension["info"] : undefined;
};

/**
 * Finds the signed offer in a 402 for these terms: the one with the same terms, else the one with the same
 * index in the list as sent, else the only one if there is one way to pay. MPP has no signed offers.
 */
export function offeredFor(
  { extensions, accepts }: { extensions: unknown; accepts: readonly unknown[] },
  terms: PaidFor["terms"] & { protocol: "x402" | "mpp"; index?: number },
): unknown {
  const offers = infoOf(extensions)?.["offers"];
  if (terms.protocol === "mpp" || !Array.isArray(offers) || offers.length === 0) return undefined;
  const listed = offers.slice(0, MAX_OFFERS) as unknown[];
  const own =
    listed.find((offer) => differences(claimsOf(offer), terms).length === 0) ??
    listed.find((offer) => isRecord(offer) && offer["acceptIndex"] === terms.index) ??
    (accepts.length === 1 && listed.length === 1 ? listed[0] : undefined);
  return own === undefined ? undefined : (bounded(own) ?? TOO_LARGE);
}

/** The signed receipt in a decoded `PAYMENT-RESPONSE`. */
export const receiptIn = (paymentResponse: unknown): unknown =>
  infoOf(isRecord(paymentResponse) ? paymentResponse["extensions"] : undefined)?.["receipt"];

/** Undefined when the seller signed nothing. */
export async function examine(
  signed: { offer: unknown; receipt: unknown },
  paid: PaidFor,
): Promise<KeptEvidence | undefined> {
  const [offer, receipt] = await Promise.all([
    signed.offer === undefined ? undefined : examineOffer(signed.offer, paid),
    signed.receipt === undefined ? undefined : examineReceipt(signed.receipt, paid),
  ]);
  if (!offer && !receipt) return undefined;
  const why =
    receipt?.why !== undefined
      ? `The receipt: ${receipt.why}`
      : offer?.why !== undefined
        ? `The offer: ${offer.why}`
        : receipt
          ? undefined
          : "The seller signed its offer but sent no receipt.";
  return {
    verified: why === undefined,
    ...(why !== undefined && { why }),
    ...(offer && { offer }),
    ...(receipt && { receipt }),
  };
}

async function examineOffer(signed: unknown, paid: PaidFor): Promise<KeptPiece> {
  const { piece, claims } = await checkSignature(signed, paid.payTo, {
    eip712: (offer) => verifyOfferSignatureEIP712(offer as unknown as EIP712SignedOffer),
    jws: (offer, key) => verifyOfferSignatureJWS(offer as unknown as JWSSignedOffer, key as never),
  });
  if (!claims || piece.why !== undefined) return piece;
  const wrong = differences(claims, paid.terms);
  if (!isSameUrl(claims["resourceUrl"], paid.url)) wrong.push("resourceUrl");
  const until = claims["validUntil"];
  const isOver = typeof until === "number" && until > 0 && until * 1000 < paid.fromMs - SLACK_MS;
  if (wrong.length > 0)
    return refused(piece, `Its ${listed(wrong)} not the same as in the payment.`);
  return isOver ? refused(piece, "It had expired before the payment.") : piece;
}

async function examineReceipt(signed: unknown, paid: PaidFor): Promise<KeptPiece> {
  const { piece: found, claims } = await checkSignature(signed, paid.payTo, {
    eip712: (receipt) => verifyReceiptSignatureEIP712(receipt as unknown as EIP712SignedReceipt),
    jws: (receipt, key) =>
      verifyReceiptSignatureJWS(receipt as unknown as JWSSignedReceipt, key as never),
  });
  if (!claims) return found;
  const { network, resourceUrl, payer, issuedAt, transaction } = claims;
  const issued = isTime(issuedAt) ? issuedAt : undefined;
  const named = isHash(transaction) ? (transaction.toLowerCase() as Hex) : undefined;
  const piece: KeptPiece = {
    ...found,
    ...(issued !== undefined && { issuedAt: issued }),
    ...(named && { transaction: named }),
  };
  if (piece.why !== undefined) return piece;
  const wrong: string[] = [];
  if (!paid.networkNames.some((name) => name === network)) wrong.push("network");
  if (!isSame(payer, paid.wallet)) wrong.push("payer");
  if (!isSameUrl(resourceUrl, paid.url)) wrong.push("resourceUrl");
  // A seller may omit it; then the time shows which payment it belongs to.
  const namesOne = transaction !== undefined && transaction !== "";
  if (namesOne && named !== paid.txHash) wrong.push("transaction");
  if (wrong.length > 0)
    return refused(piece, `Its ${listed(wrong)} not the same as in the payment.`);
  const isTimely =
    issued !== undefined &&
    issued * 1000 >= paid.fromMs - SLACK_MS &&
    issued * 1000 <= paid.toMs + SLACK_MS;
  return isTimely ? piece : refused(piece, "Its time of issue does not match the payment.");
}

/** Unix seconds within the range of a date. */
const isTime = (value: unknown): value is number =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 0 && value < 1e11;

const isHash = (value: unknown): value is string =>
  typeof value === "string" && /^0x[0-9a-fA-F]{64}$/.test(value);

interface Verifiers {
  eip712(signed: Record<string, unknown>): Promise<{ signer: Hex; payload: object }>;
  jws(signed: Record<string, unknown>, key: unknown): Promise<object>;
}

interface Checked {
  /** If `why` is undefined, the payee signed it. */
  piece: KeptPiece;
  /** The signed content, whoever signed it. */
  claims?: Record<string, unknown>;
}

async function checkSignature(
  signed: unknown,
  payTo: Address,
  verify: Verifiers,
): Promise<Checked> {
  const kept = signed === TOO_LARGE ? undefined : bounded(signed);
  if (kept === undefined) return { piece: { verified: false, why: "It is too large to store." } };
  const format = isRecord(kept) ? kept["format"] : undefined;
  if (!isRecord(kept) || (format !== "eip712" && format !== "jws"))
    return { piece: { verified: false, why: "It is malformed.", signed: kept } };
  const signature = String(kept["signature"]);
  let piece: KeptPiece = { verified: true, format, signed: kept };
  try {
    if (format === "eip712") {
      const { signer, payload } = await verify.eip712(kept);
      piece = signedBy({ ...piece, signer: getAddress(signer) }, payTo);
      return { piece, claims: payload as Record<string, unknown> };
    }
    const { kid } = extractJWSHeader(signature);
    const key = plainWords(kid, MAX_KEY_LENGTH);
    piece = { ...piece, ...(key !== "" && { key }) };
    if (kid !== key || !/^did:(?:key|jwk):/.test(key))
      return {
        piece: refused(piece, "It does not contain its key, and Purser does not fetch keys."),
      };
    const publicKey = await extractPublicKeyFromKid(key);
    const claims = await verify.jws(kept, publicKey);
    const signer = addressOf(publicKey);
    piece = signedBy({ ...piece, ...(signer && { signer }) }, payTo);
    return { piece, claims: claims as Record<string, unknown> };
  } catch {
    // The libraries' error messages quote the document, so they are not stored.
    return { piece: refused(piece, "Its signature does not match its content.") };
  }
}

function signedBy(piece: KeptPiece, payTo: Address): KeptPiece {
  if (isSame(piece.signer, payTo)) return piece;
  const who = piece.signer ?? "a key that is not a wallet's";
  return refused(piece, `It is signed by ${who}, not by the payee.`);
}

/** The address of a secp256k1 key; undefined for other curves. */
function addressOf(key: unknown): Address | undefined {
  const object = key instanceof KeyObject ? key : KeyObject.from(key as never);
  const jwk = object.export({ format: "jwk" });
  if (jwk.crv !== "secp256k1" || jwk.x === undefined || jwk.y === undefined) return undefined;
  const point = [jwk.x, jwk.y].map((part) => Buffer.from(part, "base64url"));
  return publicKeyToAddress(bytesToHex(Buffer.concat([Buffer.of(4), ...point])));
}

const refused = (piece: KeptPiece, why: string): KeptPiece => ({ ...piece, verified: false, why });

/** Stands for a document that was too large to store. */
const TOO_LARGE = "too large";

/**
 * Removes invisible characters and limits the size: a document whose visible text is not what was signed does
 * not verify.
 */
const bounded = (signed: unknown): unknown => plainJson(signed, MAX_SIGNED_BYTES);

/** The content of a document, without checking its signature. */
function claimsOf(signed: unknown): Record<string, unknown> {
  if (!isRecord(signed)) return {};
  if (signed["format"] === "eip712") return isRecord(signed["payload"]) ? signed["payload"] : {};
  try {
    const [, payload = ""] = String(signed["signature"]).slice(0, MAX_SIGNED_BYTES).split(".");
    const read = JSON.parse(Buffer.from(payload, "base64url").toString()) as unknown;
    return isRecord(read) ? read : {};
  } catch {
    return {};
  }
}

const TERMS = ["scheme", "network", "asset", "payTo", "amount"] as const;

const differences = (claims: Record<string, unknown>, terms: PaidFor["terms"]): string[] =>
  TERMS.filter((name) => !isSame(claims[name], terms[name]));

const isSame = (left: unknown, right: string): boolean =>
  typeof left === "string" && left.toLowerCase() === right.toLowerCase();

/** The fragment after # is not sent in a request. */
function isSameUrl(written: unknown, requested: URL): boolean {
  if (typeof written !== "string" || !URL.canParse(written)) return false;
  const url = new URL(written);
  url.hash = "";
  return url.href === requested.href;
}

const listed = (names: readonly string[]): string =>
  `${names.join(", ")} ${names.length === 1 ? "is" : "are"}`;

/** As the API returns it: our findings, and the seller's text apart as untrusted. */
export function presentEvidence(stored: unknown): PaymentEvidence | null {
  if (!isRecord(stored)) return null;
  const { verified, why, offer, receipt } = stored as unknown as KeptEvidence;
  const presentPiece = ({ verified, why, format, signer }: KeptPiece) => ({
    verified,
    why: why ?? null,
    format: format ?? null,
    signer: signer ?? null,
  });
  return {
    verified,
    why: why ?? null,
    offer: offer ? presentPiece(offer) : null,
    receipt: receipt
      ? {
          ...presentPiece(receipt),
          issuedAt:
            receipt.issuedAt === undefined ? null : new Date(receipt.issuedAt * 1000).toISOString(),
          transaction: receipt.transaction ?? null,
        }
      : null,
    thirdParty: {
      untrusted: true,
      key: receipt?.key ?? offer?.key ?? null,
      ...(offer?.signed !== undefined && { offer: offer.signed }),
      ...(receipt?.signed !== undefined && { receipt: receipt.signed }),
    },
  };
}

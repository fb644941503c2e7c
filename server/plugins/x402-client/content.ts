/** The target's response as members of ours. Upstream content is only data, and is returned unchanged. */
import { parseAtomic } from "../../core/money.ts";
import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from "@x402/core/http";
import type { Hex } from "viem";
import { fromBase64Url } from "../../../packages/paywall/src/mpp-wire.ts";
import { ExactJson, jsonStringBytes } from "../../core/exact-json.ts";
import {
  isRecord,
  isTooDeep,
  plainJson,
  parseForeignJson,
  plainWords,
  readForeignJson,
} from "../../core/foreign-text.ts";
import type { OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { TargetRequest } from "./request.ts";

type Headers = OutboundResponse["headers"];

/** Everything that an agent gets of one response; it can be stored as JSON and returned later. */
export interface UpstreamContent {
  status: number;
  headers: Record<string, string>;
  contentType: string | null;
  /** As written, decoded by its declared charset; for JSON too. */
  text?: string;
  /** The text is JSON: it is returned as `data`. */
  isJson?: boolean;
  dataBase64?: string;
  /** `dataBase64` is still compressed in this way. */
  contentEncoding?: string;
  truncated: boolean;
  truncatedBy?: NonNullable<OutboundResponse["truncated"]>;
  bytes: number;
  /** The seller's report of the payment. */
  paymentResponse?: unknown;
  /** For a 402: the seller's reason. */
  refusal?: string;
}

export function contentOfResponse(response: OutboundResponse): UpstreamContent {
  const { status, headers, body, truncated, contentEncoding } = response;
  const paymentResponse = readPaymentResponse(headers);
  const refusal = status === 402 ? readRefusal(headers["payment-required"]) : "";
  return {
    status,
    headers: returnedHeaders(headers),
    ...readContent(response),
    ...(contentEncoding === undefined ? {} : { contentEncoding: plainWords(contentEncoding, 100) }),
    truncated: truncated !== undefined,
    ...(truncated === undefined ? {} : { truncatedBy: truncated }),
    bytes: body.length,
    ...(paymentResponse === undefined ? {} : { paymentResponse }),
    ...(refusal === "" ? {} : { refusal }),
  };
}

/**
 * Members of our response, with the content once: JSON as `data`, text as `text`, other bytes as `dataBase64`.
 */
function presentContent(seen: UpstreamContent): Record<string, unknown> {
  const { paymentResponse: _claim, refusal: _why, text, isJson, dataBase64, ...about } = seen;
  if (dataBase64 !== undefined) return { ...about, dataBase64 };
  if (text === undefined) return { ...about, data: null };
  return { ...about, ...(isJson === true ? { data: new ExactJson(text) } : { text }) };
}

/** The target's response as members of our response. */
export function contentMembers(
  target: TargetRequest,
  seen: UpstreamContent,
): Record<string, unknown> {
  return {
    ...presentContent(seen),
    source: target.url.href,
    omittedHeaders: target.omittedHeaders,
  };
}

/** Marks third-party text and keeps it apart from our own. */
export const untrusted = (
  text: Record<string, unknown>,
): {
  thirdParty: Record<string, unknown>;
} => ({
  thirdParty: { untrusted: true, ...text },
});

/** The seller's response, returned with an error of ours. */
export function sellersAnswer(seen: UpstreamContent | undefined): {
  thirdParty?: Record<string, unknown>;
} {
  if (seen === undefined) return {};
  const { paymentResponse, refusal } = seen;
  const reason = readReceipt(seen).reason ?? refusal;
  return untrusted({
    ...presentContent(seen),
    ...(paymentResponse === undefined ? {} : { paymentResponse }),
    ...(reason === undefined ? {} : { reason }),
  });
}

/**
 * The stored form. `data` shows only whether the text is JSON, in a format that the previous release also
 * reads.
 */
export const keptForm = ({ isJson, ...seen }: UpstreamContent): Kept =>
  seen.text === undefined ? seen : { ...seen, data: isJson === true ? null : "" };

/** Restores a stored response, from JSON or its value. */
export function storedContent(kept: string | Kept): UpstreamContent {
  const { data, ...seen } = typeof kept === "string" ? (JSON.parse(kept) as Kept) : kept;
  return seen.text === undefined ? seen : { ...seen, isJson: typeof data !== "string" };
}

type Kept = Omit<UpstreamContent, "isJson"> & { data?: unknown };

/**
 * The target broke off the response: the rest is missing because of it, and it may not have finished its work.
 */
export const isBrokenOff = ({ truncatedBy }: Pick<UpstreamContent, "truncatedBy">): boolean =>
  truncatedBy === "connection" || truncatedBy === "timeout";

/** 304 responds to a conditional request and is not a redirect. */
export const isRedirect = (status: number): boolean =>
  status >= 300 && status < 400 && status !== 304;

const RETURNED_HEADERS = ["content-type", "location", "link", "retry-after", "etag"] as const;
/** A truncated link would be another link, so longer values are left out. */
const MAX_HEADER_LENGTH = 4_096;

function returnedHeaders(headers: Headers): Record<string, string> {
  const returned: Record<string, string> = {};
  for (const name of RETURNED_HEADERS) {
    const value = headers[name];
    const text = Array.isArray(value) ? value.join(", ") : value;
    if (text === undefined || text.length > MAX_HEADER_LENGTH) continue;
    returned[name] = plainWords(text, MAX_HEADER_LENGTH);
  }
  return returned;
}

type Content = Pick<UpstreamContent, "text" | "isJson" | "dataBase64" | "contentType">;

const JSON_TYPE = /^application\/(?:[\w.+-]+\+)?json$/;
const TEXT_TYPE =
  /^(?:text\/[\w.+-]+|[\w.+-]+\/[\w.+-]+\+xml|application\/(?:xml|javascript|x-www-form-urlencoded|yaml|x-ndjson|graphql))$/;

function readContent({
  headers,
  body,
  contentEncoding,
  truncated,
}: Pick<OutboundResponse, "headers" | "body" | "contentEncoding" | "truncated">): Content {
  const header = headers["content-type"];
  const contentType = plainWords(Array.isArray(header) ? header[0] : header, 200) || null;
  if (body.length === 0) return { contentType };
  const { mediaType, charset } = readType(contentType ?? "");
  const isJson = JSON_TYPE.test(mediaType);
  const isText = isJson || mediaType === "" || TEXT_TYPE.test(mediaType) || charset !== undefined;
  const text =
    isText && contentEncoding === undefined
      ? decodeText(body, charset, truncated !== undefined)
      : undefined;
  const inBytes = (): Content => ({ dataBase64: body.toString("base64"), contentType });
  if (text === undefined) return inBytes();
  // Declared as JSON but invalid or too deeply nested: returned as text, unchanged.
  const isValue = isJson && parseForeignJson(text).ok;
  return isShortAsJson(text, isValue, body.length)
    ? { text, isJson: isValue, contentType }
    : inBytes();
}

/** Below this size the text may be longer than base64: text with many quotes, or in a single-byte charset. */
const SHORT_BYTES = 1024 * 1024;

/**
 * Whether text is returned as text. A control character takes six bytes in JSON, so text that is mostly control
 * characters is returned as base64. No long response is longer than the base64 of the received body.
 */
function isShortAsJson(text: string, isValue: boolean, bodyBytes: number): boolean {
  const textBytes = Buffer.byteLength(text);
  const bytes = isValue ? textBytes : jsonStringBytes(text);
  return bytes <= base64Bytes(bodyBytes) || bytes <= Math.min(SHORT_BYTES, 2 * textBytes);
}

/** The length of base64 of this many bytes. */
const base64Bytes = (bytes: number): number => 4 * Math.ceil(bytes / 3);

function readType(contentType: string): { mediaType: string; charset: string | undefined } {
  const [mediaType = "", ...parameters] = contentType.split(";");
  const charset = parameters
    .map((parameter) => /^\s*charset\s*=\s*"?([^"\s]+)"?\s*$/i.exec(parameter)?.[1])
    .find((label) => label !== undefined);
  return { mediaType: mediaType.trim().toLowerCase(), charset };
}

/**
 * A byte order mark overrides the header, and is not part of the text. Text that is invalid in its charset is
 * returned as bytes, not with replacement characters; so is text in an unknown charset, unless it is UTF-8.
 */
function decodeText(body: Buffer, charset: string | undefined, isCut: boolean): string | undefined {
  const label = markedCharset(body) ?? charset ?? "utf-8";
  try {
    const decoder = decoderOf(label);
    if (decoder.encoding === "windows-1252") return decodeWestern(body);
    // Truncated text may end in the middle of a character.
    return decoder.decode(body, { stream: isCut });
  } catch {
    return undefined;
  }
}

/**
 * Characters 0x80 to 0x9f of windows-1252 (which the web also means by latin1); Node decodes them as control
 * characters.
 */
const WESTERN =
  "\u20ac\u0081\u201a\u0192\u201e\u2026\u2020\u2021\u02c6\u2030\u0160\u2039\u0152\u008d\u017d\u008f" +
  "\u0090\u2018\u2019\u201c\u201d\u2022\u2013\u2014\u02dc\u2122\u0161\u203a\u0153\u009d\u017e\u0178";

function decodeWestern(body: Buffer): string {
  const text = body.toString("latin1");
  if (!/[\u0080-\u009f]/.test(text)) return text;
  const units = Uint16Array.from(body, (byte) =>
    byte >= 0x80 && byte <= 0x9f ? WESTERN.charCodeAt(byte - 0x80) : byte,
  );
  return Buffer.from(units.buffer).toString("utf16le");
}

function markedCharset([first, second, third]: Buffer): string | undefined {
  if (first === 0xef && second === 0xbb && third === 0xbf) return "utf-8";
  if (first === 0xfe && second === 0xff) return "utf-16be";
  return first === 0xff && second === 0xfe ? "utf-16le" : undefined;
}

function decoderOf(label: string) {
  try {
    return new TextDecoder(label, { fatal: true });
  } catch {
    return new TextDecoder("utf-8", { fatal: true });
  }
}

/**
 * Reads PAYMENT-RESPONSE: the seller's claim about the payment. It is never proof: the chain shows whether an
 * authorization was used, and by which transaction.
 */
const MAX_CLAIM_BYTES = 8 * 1024;

function readPaymentResponse(headers: Headers): unknown {
  const header = headers["payment-response"] ?? headers["x-payment-response"];
  if (header === undefined) return readPaymentReceipt(headers["payment-receipt"]);
  if (typeof header !== "string") return undefined;
  const claimed = readForeignJson(() => decodePaymentResponseHeader(header));
  if (!claimed.ok || !isRecord(claimed.value) || isTooDeep(claimed.value)) return undefined;
  return plainJson(claimed.value, MAX_CLAIM_BYTES);
}

/** The same claim in MPP's header. */
function readPaymentReceipt(header: string | string[] | undefined): unknown {
  if (typeof header !== "string" || header.length > 2 * MAX_CLAIM_BYTES) return undefined;
  const claimed = fromBase64Url(header);
  return isRecord(claimed) ? plainJson(claimed, MAX_CLAIM_BYTES) : undefined;
}

/** Version 2 has the reason in the header; version 1 in the body, which is not read here. */
function readRefusal(header: string | string[] | undefined): string {
  if (typeof header !== "string") return "";
  const read = readForeignJson(() => decodePaymentRequiredHeader(header));
  return read.ok && isRecord(read.value) ? plainWords(read.value["error"], 300) : "";
}

interface ClaimedReceipt {
  /** The transaction to check first. */
  txHash?: Hex;
  /** Why the seller's facilitator did not settle, if the seller reports it. */
  reason?: string;
  /** The reported charge in atomic units, if it may be less than a maximum. */
  charged?: bigint;
}

export function readReceipt({
  paymentResponse,
}: Pick<UpstreamContent, "paymentResponse">): ClaimedReceipt {
  if (!isRecord(paymentResponse)) return {};
  // MPP calls it `reference`.
  const { reference, transaction = reference, errorReason, amount } = paymentResponse;
  const charged = parseAtomic(amount);
  return {
    ...(charged !== undefined && { charged }),
    ...(typeof transaction === "string" &&
      /^0x[0-9a-fA-F]{64}$/.test(transaction) && { txHash: transaction.toLowerCase() as Hex }),
    // It becomes part of our sentence, so only codes of the protocol are accepted.
    ...(typeof errorReason === "string" &&
      /^[\w .:-]{1,120}$/.test(errorReason) && { reason: errorReason }),
  };
}

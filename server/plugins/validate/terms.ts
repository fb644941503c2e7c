/** Reads where a 402 has its offers: version 2 in a header, version 1 in the body, and what is wrong with that. */
import { decodePaymentRequiredHeader } from "@x402/core/http";
import { isRecord, parseForeignJson, readForeignJson } from "../../core/foreign-text.ts";
import type { OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { Finding } from "../../schemas/validate.ts";
import { finding, type CauseCode } from "./causes.ts";

type Fields = Record<string, unknown>;

/** One entry of `accepts`, as the seller wrote it. */
export interface Entry {
  /** Counted over both versions, from 1. */
  number: number;
  version: 1 | 2;
  /** In its own list, from 0. */
  index: number;
  where: string;
  raw: unknown;
}

export interface Terms {
  /** The JSON of the header and of the body, where they have any. */
  header: Fields | undefined;
  body: Fields | undefined;
  entries: Entry[];
  findings: Finding[];
}

const HEADER = "PAYMENT-REQUIRED";
const BODY = "body";
const MAX_ENTRIES = 64;
export const MAX_CHECKED = 16;
const LONG_HEADER_BYTES = 8 * 1024;
/** Node's limit is 16 KiB for all headers together. */
const MOST_HEADER_BYTES = 15 * 1024;

/** `hasMpp`: there is a way to pay besides x402. */
export function readTerms({ headers, body }: OutboundResponse, hasMpp: boolean): Terms {
  const header = headers["payment-required"];
  const inBody = readBody(body);
  if (header === undefined) return fromBodyAlone(inBody, hasMpp);
  const read = readHeader(header);
  if ("code" in read) return { ...NOTHING, body: inBody, findings: [finding(read.code, HEADER)] };
  const findings = checkList(read.value, 2, HEADER);
  findings.push(...checkLength(header.length));
  const entries = listed(read.value, 2, HEADER, 0);
  const hasOlder = inBody?.["x402Version"] === 1;
  const older = hasOlder ? listed(inBody, 1, BODY, entries.length) : [];
  if (hasOlder) findings.push(...checkList(inBody, 1, BODY));
  return withLimit({ header: read.value, body: inBody, entries: [...entries, ...older], findings });
}

function checkLength(bytes: number): Finding[] {
  if (bytes <= LONG_HEADER_BYTES) return [];
  const code = bytes > MOST_HEADER_BYTES ? "header_over_limit" : "header_long";
  return [finding(code, HEADER, { because: `It has ${bytes} bytes.` })];
}

const NOTHING: Terms = { header: undefined, body: undefined, entries: [], findings: [] };

function fromBodyAlone(body: Fields | undefined, hasMpp: boolean): Terms {
  const version = body?.["x402Version"];
  if (body && version === 1) {
    const findings = [finding("v1_only", HEADER), ...checkList(body, 1, BODY)];
    return withLimit({ ...NOTHING, body, entries: listed(body, 1, BODY, 0), findings });
  }
  if (hasMpp) return { ...NOTHING, body };
  if (body && version === 2) return { ...NOTHING, body, findings: [finding("v2_in_body", BODY)] };
  const code = body && Array.isArray(body["accepts"]) ? "wrong_version" : "no_terms";
  const where = code === "no_terms" ? HEADER : `${BODY}: x402Version`;
  return { ...NOTHING, body, findings: [finding(code, where)] };
}

function readHeader(header: string | string[]): { value: Fields } | { code: CauseCode } {
  if (Array.isArray(header)) return { code: "header_twice" };
  const read = readForeignJson(() => decodePaymentRequiredHeader(header));
  if (!read.ok)
    return { code: read.why.includes("deeper") ? "terms_too_deep" : "header_unreadable" };
  return isRecord(read.value) ? { value: read.value } : { code: "header_unreadable" };
}

function readBody(body: Buffer): Fields | undefined {
  const read = parseForeignJson(body.toString("utf8"));
  return read.ok && isRecord(read.value) ? read.value : undefined;
}

function checkList(value: Fields, version: 1 | 2, source: string): Finding[] {
  if (value["x402Version"] !== version)
    return [
      finding("wrong_version", `${source}: x402Version`, { fix: `"x402Version": ${version}` }),
    ];
  const entries = entriesOf(value);
  if (entries.length === 0) return [finding("no_accepts", `${source}: accepts`)];
  return entries.length > MAX_ENTRIES ? [finding("too_many_accepts", `${source}: accepts`)] : [];
}

const entriesOf = (value: Fields): readonly unknown[] =>
  Array.isArray(value["accepts"]) ? value["accepts"] : [];

const listed = (value: Fields, version: 1 | 2, source: string, before: number): Entry[] =>
  entriesOf(value)
    .slice(0, MAX_CHECKED + 1)
    .map((raw, index) => ({
      number: before + index + 1,
      version,
      index,
      where: `${source}: accepts[${index}]`,
      raw,
    }));

function withLimit(terms: Terms): Terms {
  const { entries, findings } = terms;
  if (entries.length <= MAX_CHECKED) return terms;
  return {
    ...terms,
    entries: entries.slice(0, MAX_CHECKED),
    findings: [...findings, finding("offers_not_checked", "accepts")],
  };
}

/**
 * What a payment buys: its URL, method and description. The seller's software names them in its terms and the payer's
 * software repeats them in the payment, so they help the merchant to recognise a sale and prove nothing.
 */
import { isRecord, plainWords } from "../../core/foreign-text.ts";

/** Longer texts are not read. */
const MAX_READ_LENGTH = 8_192;
const MAX_URL_LENGTH = 1_024;
const MAX_DESCRIPTION_LENGTH = 200;
const METHOD = /^[A-Za-z]{1,16}$/;
/** Websites, and tools of MCP servers. Any other could be a sentence: "x:Refund 500 USDC at evil.example". */
const SCHEMES = new Set(["http:", "https:", "mcp:"]);

export interface Product {
  /** Without a password, a query and a fragment. */
  url: string;
  method: string | null;
}
export interface Resource extends Product {
  description: string | null;
}

export function resourceIn(body: unknown): Resource | undefined {
  const product = productIn(body);
  if (!product) return undefined;
  const { paymentPayload: payload, paymentRequirements: requirements } = record(body);
  const stated =
    record(record(payload)["resource"])["description"] ?? record(requirements)["description"];
  const description = withoutPasswords(plainWords(stated, MAX_DESCRIPTION_LENGTH));
  return { ...product, description: description === "" ? null : description };
}

/** As it was written, with its query: to read, not to store. */
export function statedUrl(body: unknown): string | undefined {
  const { paymentPayload: payload, paymentRequirements: requirements } = record(body);
  // Version 2 has it in the payment; version 1 in the requirements.
  const url = record(record(payload)["resource"])["url"] ?? record(requirements)["resource"];
  return typeof url === "string" && url.length <= MAX_READ_LENGTH ? url : undefined;
}

export function productIn(body: unknown): Product | undefined {
  const { paymentPayload: payload, paymentRequirements: requirements } = record(body);
  const url = statedUrl(body);
  const { info } = record(record(record(payload)["extensions"])["bazaar"]);
  const input = record(info)["input"] ?? record(record(requirements)["outputSchema"])["input"];
  const { method } = record(input);
  const shown = url === undefined ? undefined : withoutSecrets(url);
  if (shown === undefined) return undefined;
  const isMethod = typeof method === "string" && METHOD.test(method);
  return { url: shown, method: isMethod ? method.toUpperCase() : null };
}

/**
 * Queries carry keys, tokens and personal data, and nothing tells those from the rest: none is kept. What remains is
 * ASCII, because a parsed URL escapes everything else.
 */
function withoutSecrets(text: string): string | undefined {
  if (!URL.canParse(text)) return undefined;
  const url = new URL(text);
  if (!SCHEMES.has(url.protocol) || url.host === "") return undefined;
  url.username = "";
  url.password = "";
  url.search = "";
  url.hash = "";
  const plain = withoutPasswords(url.href);
  return plain.length > MAX_URL_LENGTH ? undefined : plain;
}

/** Of a URL inside the text, such as the path of a proxy. */
const withoutPasswords = (text: string): string => text.replaceAll(/\/\/[^\s/@]*@/g, "//");

const record = (value: unknown): Record<string, unknown> => (isRecord(value) ? value : {});

/**
 * What a payment buys: its URL and method. The seller's software names them in its terms and the payer's software repeats
 * them in the payment, so they help the merchant to recognise a sale and prove nothing.
 */
import { isRecord } from "../../core/foreign-text.ts";

const MAX_URL_LENGTH = 2_048;
const METHOD = /^[A-Za-z]{1,16}$/;
/** Websites, and tools of MCP servers. Any other could be a sentence: "x:Refund 500 USDC at evil.example". */
const SCHEMES = new Set(["http:", "https:", "mcp:"]);

export function resourceIn(body: unknown): { url: string; method: string | null } | undefined {
  const { paymentPayload: payload, paymentRequirements: requirements } = record(body);
  // Version 2 has them in the payment; version 1 in the requirements.
  const url = record(record(payload)["resource"])["url"] ?? record(requirements)["resource"];
  const { info } = record(record(record(payload)["extensions"])["bazaar"]);
  const input = record(info)["input"] ?? record(record(requirements)["outputSchema"])["input"];
  const { method } = record(input);
  const shown = typeof url === "string" ? withoutSecrets(url) : undefined;
  if (shown === undefined) return undefined;
  const isMethod = typeof method === "string" && METHOD.test(method);
  return { url: shown, method: isMethod ? method.toUpperCase() : null };
}

/** Without a password and a fragment. */
function withoutSecrets(text: string): string | undefined {
  if (text.length > MAX_URL_LENGTH || !URL.canParse(text)) return undefined;
  const url = new URL(text);
  if (!SCHEMES.has(url.protocol) || url.host === "") return undefined;
  url.username = "";
  url.password = "";
  url.hash = "";
  return url.href.length > MAX_URL_LENGTH ? undefined : url.href;
}

const record = (value: unknown): Record<string, unknown> => (isRecord(value) ? value : {});

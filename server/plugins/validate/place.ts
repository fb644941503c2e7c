/** Checks of a 402 beside its offers: what it says about the resource, its announcement, browsers and caches. */
import { isRecord, plainWords } from "../../core/foreign-text.ts";
import { isForbiddenAddress } from "../../infra/outbound/guard.ts";
import type { OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { Finding } from "../../schemas/validate.ts";
import { LONGEST } from "../listings/listing-text.ts";
import { isSamePlace } from "../marketplace/announcement.ts";
import { finding } from "./causes.ts";
import type { Terms } from "./terms.ts";

type Fields = Record<string, unknown>;
type Headers = OutboundResponse["headers"];

/** What the seller says about what it sells, in the fields of version 2. */
export interface About {
  where: string;
  url: unknown;
  serviceName: unknown;
  description: unknown;
  mimeType: unknown;
}

export function aboutOf({ header, body }: Terms): About | undefined {
  if (header) {
    const resource = isRecord(header["resource"]) ? header["resource"] : {};
    const { url, serviceName, description, mimeType } = resource;
    return { where: "PAYMENT-REQUIRED: resource", url, serviceName, description, mimeType };
  }
  const accepts = body?.["accepts"];
  const first: unknown = Array.isArray(accepts) ? accepts[0] : undefined;
  if (body?.["x402Version"] !== 1 || !isRecord(first)) return undefined;
  const { resource: url, description, mimeType } = first;
  return { where: "body: accepts[0]", url, serviceName: undefined, description, mimeType };
}

export function checkAbout(about: About, asked: URL): Finding[] {
  const found = checkResourceUrl(about, asked);
  const { where, description, mimeType, serviceName } = about;
  if (!isText(description)) found.push(finding("description_missing", `${where}.description`));
  if (!isText(mimeType)) found.push(finding("mime_missing", `${where}.mimeType`));
  const texts = { description, serviceName };
  for (const [name, text] of Object.entries(texts)) {
    if (!isText(text)) continue;
    const plain = plainWords(text, LONGEST.description);
    const cut = text.slice(0, LONGEST.description);
    if (plain.length < cut.replaceAll(/\s+/g, " ").trim().length || HIDDEN.test(cut))
      found.push(finding("text_hidden", `${where}.${name}`, { found: plain.slice(0, 120) }));
    if (/<[a-z!/][^>]*>/i.test(cut))
      found.push(finding("text_markup", `${where}.${name}`, { found: plain.slice(0, 120) }));
  }
  return found;
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";
const HIDDEN = /[\p{Cf}\p{Co}]|(?![\n\r\t])\p{Cc}/u;

function checkResourceUrl({ where, url }: About, asked: URL): Finding[] {
  const place = where.startsWith("body") ? `${where}.resource` : `${where}.url`;
  const fix = `"${place.split(".").at(-1)}": "${asked.href}"`;
  const details = { fix, found: plainWords(url, 300) };
  if (!isText(url)) return [finding("resource_missing", place, { fix })];
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
    return [finding("resource_invalid", place, details)];
  const named = new URL(url);
  const found: Finding[] = [];
  const isAskedPrivate = isPrivate(asked.hostname);
  if (isPrivate(named.hostname) && !isAskedPrivate)
    found.push(finding("resource_private", place, details));
  else if (!isSamePlace(asked.href, url)) found.push(finding("resource_differs", place, details));
  if (asked.protocol === "https:" && named.protocol === "http:")
    found.push(finding("resource_not_https", place, details));
  return found;
}

const PRIVATE_NAME = /(^|\.)(localhost|local|internal)\.?$/;

function isPrivate(hostname: string): boolean {
  const host = hostname.replaceAll(/^\[|\]$/g, "");
  const isAddress = host.includes(":") || /^[0-9.]+$/.test(host);
  return isAddress ? isForbiddenAddress(host) : PRIVATE_NAME.test(host);
}

/** `refusal`: why the announcement lists nothing. */
export function checkAnnouncement({ header }: Terms, refusal: string | undefined): Finding[] {
  if (!header) return [];
  const extensions = isRecord(header["extensions"]) ? header["extensions"] : {};
  const bazaar = extensions["bazaar"];
  const where = "PAYMENT-REQUIRED: extensions.bazaar";
  if (!isRecord(bazaar)) return [finding("bazaar_missing", where)];
  const info = isRecord(bazaar["info"]) ? bazaar["info"] : {};
  const output = isRecord(info["output"]) ? info["output"] : {};
  const found: Finding[] = [];
  if (refusal !== undefined) found.push(finding("bazaar_refused", where, { because: refusal }));
  if (output["example"] === undefined || output["example"] === null)
    found.push(finding("bazaar_no_output", `${where}.info.output`));
  return found;
}

/** `again`: the same request as a web page of another origin sends it. `preflight`: the question before a payment. */
export function checkBrowsers(
  again: Headers | undefined,
  preflight: Headers | undefined,
): Finding[] {
  if (!again) return [];
  const origin = textOf(again["access-control-allow-origin"]);
  if (origin === "") return [finding("cors_none", "Access-Control-Allow-Origin")];
  const found: Finding[] = [];
  const isInHeader = again["payment-required"] !== undefined;
  if (isInHeader && !names(again["access-control-expose-headers"], "payment-required"))
    found.push(finding("cors_hidden", "Access-Control-Expose-Headers"));
  const proof = isInHeader ? "payment-signature" : "x-payment";
  if (!preflight || !names(preflight["access-control-allow-headers"], proof))
    found.push(finding("cors_preflight", "Access-Control-Allow-Headers"));
  return found;
}

const textOf = (header: string | string[] | undefined): string => [header ?? []].flat().join(", ");

const names = (header: string | string[] | undefined, wanted: string): boolean =>
  textOf(header)
    .toLowerCase()
    .split(",")
    .some((name) => name.trim() === wanted || name.trim() === "*");

/** A 402 is stored only where its headers say so. */
export function checkCaching(headers: Headers): Finding[] {
  const found: Finding[] = [];
  const control = textOf(headers["cache-control"]).toLowerCase();
  const isKept = /(?:s-maxage|max-age)\s*=\s*"?[1-9]/.test(control) || /\bpublic\b/.test(control);
  if (isKept && !/no-store|no-cache|\bprivate\b/.test(control))
    found.push(finding("cacheable", "Cache-Control", { found: plainWords(control, 120) }));
  const isHit = [headers["x-cache"], headers["cf-cache-status"]].some((header) =>
    /\bhit\b/i.test(textOf(header)),
  );
  if (isHit || Number(textOf(headers["age"])) > 0) found.push(finding("from_cache", "Age"));
  return found;
}

/** A seller with a new payee for each request cannot be pinned. */
export function checkSame(first: Terms, second: Terms): Finding[] {
  const pinned = ({ entries }: Terms): string =>
    JSON.stringify(
      entries.map(({ raw }) => {
        const { payTo, asset, network } = isRecord(raw) ? raw : ({} as Fields);
        return [payTo, asset, network];
      }),
    );
  const isEqual = second.entries.length === 0 || pinned(first) === pinned(second);
  return isEqual ? [] : [finding("terms_vary", "accepts")];
}

/**
 * Reads a page of another service's catalogue, in the protocol's Bazaar shape. All of it is a third party's text: of an
 * entry only the URL and its terms are kept, and our own probe compares them with the live 402.
 */
import { isRecord, parseAddress, parseForeignJson } from "../../core/foreign-text.ts";
import { parseAtomic } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";

export interface CatalogueEntry {
  url: string;
  host: string;
  /** Lower case. */
  payTo: string;
  network: string;
  priceAtomic: bigint;
}

export interface CataloguePage {
  entries: CatalogueEntry[];
  /** The entries of the page, with those that cannot be used. */
  count: number;
  /** Of the whole catalogue, if it says so. */
  total: number | undefined;
}

interface Rules {
  networks: readonly NetworkFacts[];
  /** Whether a probe of this URL could be sent at all. */
  mayRequest: (url: URL) => boolean;
}

const MAX_URL_LENGTH = 2_048;
/** Of one page, whatever the catalogue was asked for. */
const MOST_ITEMS = 1_000;

/** Undefined: no page of a catalogue. */
export function readCataloguePage(text: string, rules: Rules): CataloguePage | undefined {
  const parsed = parseForeignJson(text);
  if (!parsed.ok || !isRecord(parsed.value)) return undefined;
  const { items, pagination } = parsed.value;
  if (!Array.isArray(items)) return undefined;
  const total = isRecord(pagination) ? pagination["total"] : undefined;
  return {
    entries: items.slice(0, MOST_ITEMS).flatMap((item: unknown) => readEntry(item, rules)),
    count: items.length,
    total: typeof total === "number" && Number.isSafeInteger(total) ? total : undefined,
  };
}

function readEntry(item: unknown, { networks, mayRequest }: Rules): CatalogueEntry[] {
  if (!isRecord(item) || (item["type"] ?? "http") !== "http" || !isGet(item)) return [];
  const { resource, accepts } = item;
  if (typeof resource !== "string" || resource.length > MAX_URL_LENGTH || !URL.canParse(resource))
    return [];
  const url = new URL(resource);
  url.hash = "";
  // "shop.example." is another name for "shop.example".
  if (url.hostname.endsWith(".") || !mayRequest(url)) return [];
  const terms = (Array.isArray(accepts) ? accepts.slice(0, 20) : []).flatMap((accept: unknown) =>
    readTerms(accept, networks),
  );
  return terms.slice(0, 1).map((first) => ({ url: url.href, host: url.host, ...first }));
}

/** Only GET is probed, and an entry with a template is many URLs. */
function isGet(item: Record<string, unknown>): boolean {
  const { extensions, metadata, accepts } = item;
  const bazaar = isRecord(extensions) ? extensions["bazaar"] : undefined;
  if (isRecord(bazaar) && bazaar["routeTemplate"] !== undefined) return false;
  const info = isRecord(bazaar) ? bazaar["info"] : undefined;
  const first: unknown = Array.isArray(accepts) ? accepts[0] : undefined;
  const schema = isRecord(first) ? first["outputSchema"] : undefined;
  return [info, schema]
    .map((part) => (isRecord(part) ? part["input"] : undefined))
    .concat(metadata)
    .every((part) => {
      const method = isRecord(part) ? (part["method"] ?? "GET") : "GET";
      return typeof method === "string" && method.toUpperCase() === "GET";
    });
}

/** Terms that a wallet of ours could pay. */
function readTerms(accept: unknown, networks: readonly NetworkFacts[]) {
  if (!isRecord(accept)) return [];
  const { network: name, asset, payTo, amount, maxAmountRequired } = accept;
  const network = typeof name === "string" ? findNetwork(name, networks) : undefined;
  const payee = parseAddress(payTo);
  const priceAtomic = parseAtomic(amount ?? maxAmountRequired);
  const isUsdc =
    typeof asset === "string" && asset.toLowerCase() === network?.usdc.address.toLowerCase();
  return network && payee.ok && isUsdc && priceAtomic !== undefined && priceAtomic > 0n
    ? [{ payTo: payee.address.toLowerCase(), network: network.id, priceAtomic }]
    : [];
}

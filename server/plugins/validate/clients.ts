/** What each kind of client would do with a 402: by the rules of the published clients, and by the code of our own wallet. */
import { isAddress } from "viem";
import { isRecord } from "../../core/foreign-text.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { ApiError } from "../../errors.ts";
import type { ClientOutlook, Finding } from "../../schemas/validate.ts";
import { findScheme, TOKEN_SCHEME } from "../../schemes/index.ts";
import type { TargetResponse } from "../x402-client/ask.ts";
import { chooseTerms } from "../x402-client/choose.ts";
import type { OfferedTerms } from "../x402-client/terms.ts";
import type { CauseCode } from "./causes.ts";
import type { CheckedOffer } from "./offers.ts";
import type { Terms } from "./terms.ts";

export interface Seen {
  terms: Terms;
  offers: readonly CheckedOffer[];
  /** MPP challenges; their offers are numbered after those of x402. */
  charges: readonly OfferedTerms[];
  answered: TargetResponse | ApiError;
  networks: readonly NetworkFacts[];
}

type Outlook = Omit<ClientOutlook, "client" | "name">;

const NAMES: Record<ClientOutlook["client"], string> = {
  purser: "Agents of this service",
  "x402-2": "x402 clients 2.x, with default settings",
  "x402-1": "x402 clients 1.x, with default settings",
  mpp: "MPP clients that also know x402 (mppx)",
};

const client = (which: ClientOutlook["client"], outlook: Outlook): ClientOutlook => ({
  client: which,
  name: NAMES[which],
  ...outlook,
});
const refuses = (why: string): Outlook => ({ outcome: "refuses", offer: null, why });

/** `error`: why there is no readable 402. */
export const noneOf = (error: Finding | undefined): ClientOutlook[] =>
  (Object.keys(NAMES) as ClientOutlook["client"][]).map((which) =>
    client(
      which,
      error?.code === "free"
        ? refuses("It gets the answer without paying.")
        : refuses(error?.message ?? "There is no 402."),
    ),
  );

export const clientsOf = (seen: Seen): ClientOutlook[] => [
  client("purser", purser(seen)),
  client("x402-2", stock2(seen)),
  client("x402-1", stock1(seen)),
  client("mpp", mpp(seen)),
];

/** The client signs this offer: what is wrong with it shows only afterwards. */
function signs({ number, findings }: Pick<CheckedOffer, "number" | "findings">): Outlook {
  const error = findings.find(({ severity }) => severity === "error");
  return error
    ? {
        outcome: "fails",
        offer: number,
        why: `It signs, and the payment is refused. ${error.message}`,
      }
    : { outcome: "pays", offer: number, why: `It pays offer ${number}.` };
}

function purser({ answered, offers, charges, networks, terms }: Seen): Outlook {
  if (!("kind" in answered)) return refuses(answered.message);
  if (answered.kind === "free") return refuses("It gets the answer without paying.");
  const { offer } = answered;
  const choice = chooseTerms(offer, {
    networks,
    wallet: undefined,
    preferredNetwork: networks[0]?.id,
  });
  if (!choice.ok) {
    const [first] = choice.offers;
    return refuses(first?.refused?.detail ?? "It cannot pay any offer.");
  }
  const { terms: chosen } = choice.chosen;
  if (chosen.protocol === "mpp")
    return signs({
      number: offers.length + charges.findIndex(({ nonce }) => nonce === chosen.nonce) + 1,
      findings: [],
    });
  const version = terms.header ? 2 : 1;
  const found = offers.find((one) => one.version === version && one.index === chosen.index);
  return found ? signs(found) : { outcome: "pays", offer: null, why: "It pays." };
}

/** Networks of our table whose USDC the stock client 2.27 knows. A test compares them with the package. */
export const STOCK_NETWORKS: ReadonlySet<string> = new Set([
  "eip155:1",
  "eip155:8453",
  "eip155:84532",
  "eip155:137",
  "eip155:42161",
  "eip155:43114",
]);
/** `DEFAULT_MAX_AMOUNT_PER_PAYMENT` of the stock client 2.27: one dollar. */
const STOCK_2_MOST = 1_000_000n;
const FLOWS: readonly unknown[] = [undefined, null, "authorization", "upfront", "escrow"];

const UNREADABLE: ReadonlySet<string> = new Set([
  "header_twice",
  "header_unreadable",
  "terms_too_deep",
  "header_over_limit",
] satisfies CauseCode[]);

function stock2({ terms, offers }: Seen): Outlook {
  const version = terms.header ? 2 : 1;
  const source = terms.header ?? terms.body;
  if (terms.findings.some(({ code }) => UNREADABLE.has(code)))
    return refuses("It cannot read PAYMENT-REQUIRED.");
  if (source?.["x402Version"] !== version) return refuses("It finds no offer in header or body.");
  const exact = offers.filter(
    (offer) =>
      offer.version === version && offer.fields["scheme"] === TOKEN_SCHEME.name && isEvm(offer),
  );
  if (exact.length === 0)
    return refuses("There is no offer with the scheme exact on an EVM network.");
  const flowing = exact.filter(({ extra }) => FLOWS.includes(extra["paymentFlow"]));
  if (flowing.length === 0) return refuses("It does not know extra.paymentFlow.");
  const allowed = flowing.filter(isStockAsset);
  if (allowed.length === 0)
    return flowing.some(({ network }) => network === undefined)
      ? {
          outcome: "unknown",
          offer: null,
          why: "This service does not know which tokens it allows there.",
        }
      : refuses(
          "Its default settings do not allow this token: the buyer adds it to spendControls.allowedAssets.",
        );
  const cheap = allowed.filter(({ amountAtomic }) => (amountAtomic ?? 0n) <= STOCK_2_MOST);
  const first = cheap.find(({ extra }) => isPlainFlow(extra)) ?? cheap[0];
  if (!first) return refuses("Its default settings pay at most 1 USDC.");
  const why = whyNotSigned(first);
  return why === undefined ? signs(first) : refuses(why);
}

const isPlainFlow = ({ paymentFlow }: Record<string, unknown>): boolean =>
  paymentFlow === undefined || paymentFlow === null || paymentFlow === "authorization";

const isEvm = ({ version, fields, network }: CheckedOffer): boolean =>
  version === 1
    ? network?.v1Name !== undefined && fields["network"] === network.v1Name
    : typeof fields["network"] === "string" && fields["network"].startsWith("eip155:");

const isStockAsset = ({ network, isUsdc }: CheckedOffer): boolean =>
  network !== undefined && isUsdc && STOCK_NETWORKS.has(network.id);

/** What makes the signing itself impossible. */
function whyNotSigned({ fields, extra, amountAtomic }: CheckedOffer): string | undefined {
  if (!isGiven(extra["name"]) || !isGiven(extra["version"]))
    return "It cannot sign without extra.name and extra.version.";
  if (!/^0x[0-9a-fA-F]{40}$/.test(String(fields["payTo"]))) return "It cannot read payTo.";
  const isNumber =
    typeof fields["amount"] === "number" || typeof fields["maxAmountRequired"] === "number";
  return amountAtomic === undefined && !isNumber ? "It cannot read the price." : undefined;
}

const isGiven = (value: unknown): boolean => value !== undefined && value !== null && value !== "";

/** The networks that x402-fetch 1.2 knows. */
const STOCK_1_NETWORKS: ReadonlySet<unknown> = new Set([
  "abstract",
  "abstract-testnet",
  "base",
  "base-sepolia",
  "avalanche",
  "avalanche-fuji",
  "iotex",
  "sei",
  "sei-testnet",
  "polygon",
  "polygon-amoy",
  "peaq",
  "story",
  "educhain",
  "skale-base-sepolia",
  "solana",
  "solana-devnet",
]);
/** Its default `maxValue`. */
const STOCK_1_MOST = 100_000n;

function stock1({ terms, offers }: Seen): Outlook {
  if (!Array.isArray(terms.body?.["accepts"])) return refuses("It finds no offer in the body.");
  const older = offers.filter(({ version }) => version === 1);
  const bad = older.find((offer) => !isStrictV1(offer));
  if (bad) return refuses(`It refuses the whole 402, because of offer ${bad.number}.`);
  // It compares letter case too. Without USDC it takes the first offer, in any token.
  const first = older.find((one) => one.isUsdc && isChecksummed(one.fields["asset"])) ?? older[0];
  if (!first) return refuses("It finds no offer of version 1 in the body.");
  if (String(first.fields["network"]).startsWith("solana"))
    return refuses("It chooses an offer on Solana.");
  if ((first.amountAtomic ?? 0n) > STOCK_1_MOST)
    return refuses("Its default settings pay at most 0.1 USDC.");
  return signs(first);
}

const isChecksummed = (address: unknown): boolean => isAddress(String(address), { strict: true });

/** Its schema, which throws for one bad entry. */
function isStrictV1({ fields, amountAtomic }: CheckedOffer): boolean {
  const { scheme, network, resource, description, mimeType, payTo, asset, maxTimeoutSeconds } =
    fields;
  return (
    scheme === TOKEN_SCHEME.name &&
    STOCK_1_NETWORKS.has(network) &&
    amountAtomic !== undefined &&
    [description, mimeType].every((text) => typeof text === "string") &&
    typeof resource === "string" &&
    URL.canParse(resource) &&
    [payTo, asset].every((address) => isAddress(String(address), { strict: false })) &&
    Number.isSafeInteger(maxTimeoutSeconds) &&
    (fields["extra"] === undefined || isRecord(fields["extra"]))
  );
}

/** mppx signs MPP challenges first, then offers of x402 in tokens and on networks that its user allows. */
function mpp({ charges, offers, networks, terms }: Seen): Outlook {
  const index = charges.findIndex(
    ({ refused, network }) => refused === undefined && networks.some(({ id }) => id === network),
  );
  if (index >= 0) return signs({ number: offers.length + index + 1, findings: [] });
  const offer = isReadByMppx(terms.header)
    ? offers.find((one) => isSignedByMppx(one, networks))
    : undefined;
  if (offer) return signs(offer);
  if (charges.length === 0)
    return refuses(
      "There is no WWW-Authenticate: Payment header, and no offer of x402 that it signs.",
    );
  const isReadable = charges.some(({ refused }) => refused === undefined);
  return isReadable || charges.some(({ refused }) => refused?.code === "challenge_unsupported")
    ? {
        outcome: "unknown",
        offer: null,
        why: "This service does not know the challenge's method or network.",
      }
    : refuses("The challenge cannot be paid: see the findings.");
}

/** It reads no offer without a resource, because its host is the realm. */
function isReadByMppx(header: Terms["header"]): boolean {
  const resource = header?.["resource"];
  return (
    header?.["x402Version"] === 2 &&
    isRecord(resource) &&
    typeof resource["url"] === "string" &&
    URL.canParse(resource["url"]) &&
    ["description", "mimeType"].every((name) =>
      ["string", "undefined"].includes(typeof resource[name]),
    )
  );
}

/** Its list of tokens does not say on which network each is. */
const isSignedByMppx = (
  { version, isConfigured, asset, fields, extra }: CheckedOffer,
  networks: readonly NetworkFacts[],
): boolean =>
  version === 2 &&
  isConfigured &&
  networks.some(({ usdc }) => usdc.address.toLowerCase() === asset) &&
  findScheme(fields["scheme"], extra) === TOKEN_SCHEME &&
  /^[0-9]+$/.test(typeof fields["amount"] === "string" ? fields["amount"] : "") &&
  isAddress(String(fields["payTo"]), { strict: false }) &&
  Number(fields["maxTimeoutSeconds"]) > 0 &&
  [extra["name"], extra["version"]].every((text) => typeof text === "string");

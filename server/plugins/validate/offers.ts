/** Checks each offer of a 402 by itself: its fields, network, token, payee, price and time. Reads no chain. */
import { getAddress, type Address } from "viem";
import { isRecord, parseAddress, plainText, plainWords } from "../../core/foreign-text.ts";
import { formatAtomic, parseAtomic, USDC_DECIMALS } from "../../core/money.ts";
import { findNetwork, NETWORKS, type NetworkFacts } from "../../core/networks.ts";
import type { Finding } from "../../schemas/validate.ts";
import { findScheme } from "../../schemes/index.ts";
import { isEscrowScheme, isKnownScheme } from "../x402-client/choose.ts";
import { finding, type CauseCode } from "./causes.ts";
import type { Entry } from "./terms.ts";

type Fields = Record<string, unknown>;

export interface CheckedOffer extends Entry {
  fields: Fields;
  extra: Fields;
  /** Known, whether or not this service is set up for it. */
  network: NetworkFacts | undefined;
  isConfigured: boolean;
  /** Lower case. */
  asset: Address | undefined;
  isUsdc: boolean;
  payTo: Address | undefined;
  amountAtomic: bigint | undefined;
  findings: Finding[];
}

interface Context {
  /** Those that this service is set up for. */
  networks: readonly NetworkFacts[];
  minPaymentAtomic: bigint;
}

/** Adds a finding about one offer. */
type Report = (
  code: CauseCode,
  member: string,
  more?: { fix?: string; found?: unknown; because?: string },
) => void;

const GATEWAY = "GatewayWalletBatched";

export function checkOffer(entry: Entry, context: Context): CheckedOffer {
  const findings: Finding[] = [];
  const report: Report = (code, member, { fix, found, because } = {}) => {
    const where = member === "" ? entry.where : `${entry.where}.${member}`;
    const text = found === undefined ? undefined : shortOf(found);
    findings.push(finding(code, where, { fix, because, found: text, offer: entry.number }));
  };
  const fields = isRecord(entry.raw) ? entry.raw : {};
  const extra = isRecord(fields["extra"]) ? fields["extra"] : {};
  const network = networkOf(fields["network"]);
  const asset = addressOf(fields["asset"]);
  const offer: CheckedOffer = {
    ...entry,
    fields,
    extra,
    network,
    isConfigured: context.networks.some(({ id }) => id === network?.id),
    asset,
    isUsdc: asset !== undefined && asset === network?.usdc.address.toLowerCase(),
    payTo: addressOf(fields["payTo"]),
    amountAtomic: parseAtomic(priceOf(fields, entry.version)),
    findings,
  };
  if (!isRecord(entry.raw)) {
    report("offer_not_object", "");
    return offer;
  }
  checkFields(offer, report);
  checkNetwork(offer, report);
  checkScheme(offer, report);
  if (network) {
    checkAsset(offer, network, report);
    checkDomain(offer, network, report);
    checkPayee(offer, network, report);
  }
  checkPrice(offer, context.minPaymentAtomic, report);
  checkTime(offer, report);
  return offer;
}

/** Quoted at most so long. */
const MAX_FOUND = 120;
const shortOf = (value: unknown): string =>
  plainWords(plainText(value) ?? JSON.stringify(value) ?? "", MAX_FOUND);

/** Networks of version 1 that have their own name here too, and those that only clients know. */
const networkOf = (value: unknown): NetworkFacts | undefined =>
  typeof value === "string" ? findNetwork(value) : undefined;

const addressOf = (value: unknown): Address | undefined => {
  const parsed = parseAddress(value);
  return parsed.ok ? parsed.address : undefined;
};

const priceField = (version: 1 | 2) => (version === 2 ? "amount" : "maxAmountRequired");
const priceOf = (fields: Fields, version: 1 | 2): unknown => fields[priceField(version)];
const isText = (value: unknown): value is string => typeof value === "string" && value !== "";

function checkFields({ fields, version }: CheckedOffer, report: Report): void {
  for (const name of ["scheme", "network", "asset", "payTo"] as const)
    if (!isText(fields[name])) report("field_missing", name, { fix: `"${name}": "..."` });
  const { maxTimeoutSeconds } = fields;
  if (typeof maxTimeoutSeconds !== "number" || !(maxTimeoutSeconds > 0))
    report("field_missing", "maxTimeoutSeconds", { fix: '"maxTimeoutSeconds": 60' });
  if (version === 2) return;
  for (const name of ["description", "mimeType"] as const)
    if (typeof fields[name] !== "string")
      report("v1_field_missing", name, {
        fix: `"${name}": "${name === "mimeType" ? "application/json" : "What one call returns"}"`,
      });
  if (!isText(fields["resource"]) || !URL.canParse(fields["resource"]))
    report("v1_field_missing", "resource", { fix: '"resource": "<the URL of the API>"' });
}

function checkNetwork(
  { fields, version, network, isConfigured }: CheckedOffer,
  report: Report,
): void {
  const found = fields["network"];
  if (!isText(found)) return;
  const isId = found.includes(":");
  if (version === 2 && !isId)
    return report("v1_network_name", "network", {
      found,
      fix: `"network": "${network?.id ?? "eip155:<chain id>"}"`,
    });
  // Networks without a name in version 1, such as Arc, are written with their id there too.
  if (version === 1 && isId && network?.v1Name !== undefined)
    return report("v2_network_name", "network", { found, fix: `"network": "${network.v1Name}"` });
  if (!network) return report("network_unknown", "network", { found });
  if (!isConfigured) report("network_not_here", "network", { because: `It is ${network.name}.` });
}

const FLOWS: ReadonlySet<unknown> = new Set([null, "authorization", "upfront", "escrow"]);

function checkScheme({ fields, extra, network }: CheckedOffer, report: Report): void {
  const { scheme } = fields;
  if (!isText(scheme)) return;
  if (extra["name"] === GATEWAY) return report("gateway", "extra.name");
  if (isEscrowScheme(scheme)) return report("auth_capture", "scheme", { found: scheme });
  const flow = extra["paymentFlow"];
  if (flow !== undefined && !FLOWS.has(flow))
    report("flow_unknown", "extra.paymentFlow", { found: flow });
  if (network && !isKnownScheme(scheme, extra))
    report("scheme_unknown", "scheme", { found: scheme });
}

function checkAsset(
  { fields, asset, isUsdc }: CheckedOffer,
  network: NetworkFacts,
  report: Report,
) {
  const usdc = getAddress(network.usdc.address);
  const fix = `"asset": "${usdc}"`;
  if (!isText(fields["asset"]) || isUsdc) return;
  if (!asset) return report("asset_invalid", "asset", { found: fields["asset"], fix });
  const other = NETWORKS.find((known) => known.usdc.address.toLowerCase() === asset);
  if (other)
    return report("asset_of_other_network", "asset", {
      because: `It is that of ${other.name}.`,
      fix,
    });
  report("asset_not_usdc", "asset", { fix });
}

/** The domain that stock clients sign under, and facilitators check. */
function checkDomain(
  { extra, isUsdc, asset, fields }: CheckedOffer,
  network: NetworkFacts,
  report: Report,
) {
  if (!asset || extra["name"] === GATEWAY || !isText(fields["scheme"])) return;
  if (findScheme(fields["scheme"], extra) === undefined) return;
  const { name, version } = network.usdc;
  const fix = isUsdc ? `"extra": { "name": "${name}", "version": "${version}" }` : undefined;
  const more = fix === undefined ? {} : { fix };
  if (!isText(extra["name"]) || !isText(extra["version"]))
    return report("domain_missing", "extra", {
      fix: fix ?? '"extra": { "name": "...", "version": "..." }',
    });
  if (!isUsdc) return;
  if (extra["name"] !== name)
    report("domain_name_wrong", "extra.name", { found: extra["name"], ...more });
  if (extra["version"] !== version)
    report("domain_version_wrong", "extra.version", { found: extra["version"], ...more });
  const contradiction = contradictionIn(extra, network);
  if (contradiction)
    report("extra_contradicts", `extra.${contradiction}`, {
      found: extra[contradiction],
      fix: `Remove extra.${contradiction}`,
    });
}

function contradictionIn(extra: Fields, { chainId, usdc }: NetworkFacts): string | undefined {
  const expected: Record<string, string> = {
    verifyingContract: usdc.address,
    chainId: String(chainId),
    decimals: String(USDC_DECIMALS),
  };
  return Object.keys(expected).find((name) => {
    const given = extra[name];
    if (given === undefined || given === null) return false;
    return plainText(given)?.toLowerCase() !== expected[name]?.toLowerCase();
  });
}

/** Addresses that are written where somebody forgot their own. */
const BURNT = new Set([
  "0x000000000000000000000000000000000000dead",
  "0x0000000000000000000000000000000000000001",
  "0xdeaddeaddeaddeaddeaddeaddeaddeaddeaddead",
  "0xeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee",
]);

function checkPayee({ fields, asset, payTo }: CheckedOffer, network: NetworkFacts, report: Report) {
  const written = fields["payTo"];
  if (!isText(written)) return;
  const found = { found: written };
  if (/^0x0{40}$/i.test(written)) return report("payee_zero", "payTo");
  if (!payTo) {
    const isAddress = /^0x[0-9a-f]{40}$/i.test(written);
    return report(isAddress ? "payee_checksum" : "payee_invalid", "payTo", found);
  }
  if (payTo === asset || payTo === network.usdc.address.toLowerCase())
    return report("payee_is_token", "payTo", found);
  if (BURNT.has(payTo)) report("payee_burn", "payTo", found);
}

const MILLION_USDC = 10n ** 12n;
const ONE_USDC = 10n ** 6n;

function checkPrice(offer: CheckedOffer, minPaymentAtomic: bigint, report: Report): void {
  const { fields, version, amountAtomic, isUsdc } = offer;
  const name = priceField(version);
  const other = priceField(version === 2 ? 1 : 2);
  const found = fields[name];
  if (found === undefined) {
    const code = version === 2 ? "v1_price_field" : "v2_price_field";
    const fix = `"${name}": "${parseAtomic(fields[other]) ?? 10_000n}"`;
    return report(fields[other] === undefined ? "field_missing" : code, name, { fix });
  }
  if (typeof found === "number")
    return report("price_not_text", name, {
      found,
      fix: `"${name}": "${wholeUnits(String(found))}"`,
    });
  if (amountAtomic === undefined)
    return report("price_not_atomic", name, { found, fix: `"${name}": "${wholeUnits(found)}"` });
  if (amountAtomic === 0n) return report("price_zero", name);
  if (!isUsdc) return;
  const price = `It is ${formatAtomic(amountAtomic)} USDC.`;
  if (amountAtomic >= MILLION_USDC) report("price_decimals", name, { because: price });
  else if (amountAtomic > ONE_USDC) report("price_above_default", name, { because: price });
  else if (amountAtomic < minPaymentAtomic)
    report("price_below_minimum", name, {
      because: `It is ${formatAtomic(amountAtomic)} USDC; the least is ${formatAtomic(minPaymentAtomic)}.`,
      fix: `"${name}": "${minPaymentAtomic}"`,
    });
}

/** "$0.01" and "0.01" mean USDC, so that the fix is 10000; of anything else, an example. */
function wholeUnits(written: unknown): string {
  const match = typeof written === "string" ? /^\$?(\d{1,9})(?:\.(\d{1,6}))?$/.exec(written) : null;
  if (!match) return "10000";
  const [, whole = "0", fraction] = match;
  if (fraction === undefined && !String(written).startsWith("$")) return BigInt(whole).toString();
  const atomic = BigInt(whole) * ONE_USDC + BigInt((fraction ?? "").padEnd(USDC_DECIMALS, "0"));
  return atomic.toString();
}

/** The protocol's minimum: less is refused before the payment is simulated. */
const LEAST_SECONDS = 6;
const SHORT_SECONDS = 30;
const LONG_SECONDS = 3_600;

function checkTime({ fields }: CheckedOffer, report: Report): void {
  const seconds = fields["maxTimeoutSeconds"];
  if (typeof seconds !== "number" || !(seconds > 0)) return;
  const more = { found: seconds };
  if (seconds < LEAST_SECONDS) report("timeout_too_short", "maxTimeoutSeconds", more);
  else if (seconds < SHORT_SECONDS) report("timeout_short", "maxTimeoutSeconds", more);
  else if (seconds > LONG_SECONDS) report("timeout_long", "maxTimeoutSeconds", more);
}

/** Offers of both versions for the same network should be the same. */
export function contradictions(offers: readonly CheckedOffer[]): Finding[] {
  const newer = offers.filter(({ version }) => version === 2);
  const differs = offers.find((old) => {
    const same = newer.filter(({ network }) => network && network.id === old.network?.id);
    const isEqual = (other: CheckedOffer): boolean =>
      other.payTo === old.payTo &&
      other.asset === old.asset &&
      other.amountAtomic === old.amountAtomic;
    return old.version === 1 && same.length > 0 && !same.some(isEqual);
  });
  return differs ? [finding("versions_differ", differs.where, { offer: differs.number })] : [];
}

/**
 * Validates a paid API as a buyer sees it: request it without a payment, read its terms, check each offer, ask the chain,
 * and say what clients and the marketplace would do with it. Nothing is paid, and nothing is stored.
 */
import { getAddress } from "viem";
import { feeOn, type FeeTerms } from "../../core/fees.ts";
import { plainWords } from "../../core/foreign-text.ts";
import { formatAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { ApiError } from "../../errors.ts";
import type { OutboundResponse } from "../../infra/outbound/outbound.ts";
import { isMaximum } from "../../schemes/index.ts";
import type {
  ClientOutlook,
  Finding,
  Simulation,
  ValidatedOffer,
  Validation,
} from "../../schemas/validate.ts";
import { LONGEST } from "../listings/listing-text.ts";
import { wouldList, type WouldList } from "../marketplace/would-list.ts";
import { readResponse, type TargetResponse } from "../x402-client/ask.ts";
import { readCharges } from "../x402-client/challenge.ts";
import type { TargetRequest } from "../x402-client/request.ts";
import { CHALLENGE_FAULTS, type OfferedTerms } from "../x402-client/terms.ts";
import { finding } from "./causes.ts";
import { clientsOf, noneOf } from "./clients.ts";
import { checkUrl, exchange, type Send, type Wanted } from "./exchange.ts";
import { checkOffer, contradictions, type CheckedOffer } from "./offers.ts";
import { checkOnChain } from "./onchain.ts";
import {
  aboutOf,
  checkAbout,
  checkAnnouncement,
  checkBrowsers,
  checkCaching,
  checkSame,
  type About,
} from "./place.ts";
import { readTerms, type Terms } from "./terms.ts";
import { checkWellKnown } from "./well-known.ts";

interface Deps {
  send: Send;
  networks: readonly NetworkFacts[];
  privateOrigins: readonly string[];
  minPaymentAtomic: bigint;
  publicUrl: string;
  fees: FeeTerms;
  /** For each answer. */
  timeoutMs: number;
  chain: Parameters<typeof checkOnChain>[0];
  prisma: Parameters<typeof wouldList>[0]["prisma"];
}

type Checked = Pick<
  Validation,
  "findings" | "offers" | "clients" | "listed" | "status" | "wellKnown"
> & { about?: About | undefined };

export async function validate(deps: Deps, wanted: Wanted): Promise<Validation> {
  const { url, method } = wanted;
  const { about, findings, ...checked } = await check(deps, wanted);
  const shown = (text: unknown, most: number): string | null => plainWords(text, most) || null;
  return {
    url: url.href.slice(0, 2_048),
    method,
    ok: isPayable(findings, checked.offers),
    ...checked,
    findings: sorted(findings),
    thirdParty: {
      untrusted: true,
      serviceName: shown(about?.serviceName, LONGEST.name),
      description: shown(about?.description, LONGEST.description),
      mimeType: shown(about?.mimeType, LONGEST.mimeType),
    },
    checkedAt: new Date().toISOString(),
  };
}

async function check(deps: Deps, wanted: Wanted): Promise<Checked> {
  const refused = checkUrl(wanted.url, deps.privateOrigins);
  if (refused.length > 0) return nothing(refused, null);
  const { target, response, findings } = await exchange(deps.send, wanted, deps.timeoutMs);
  if (response?.status !== 402) return nothing(findings, response?.status ?? null);
  const charges = readMpp(response, target);
  const terms = readTerms(response, charges.length > 0);
  const [around, offers, host] = await Promise.all([
    checkAround(deps, { target, response, terms, charges }),
    checkOffers(deps, terms),
    checkWellKnown(deps.send, wanted.url, deps.timeoutMs),
  ]);
  const answered = readAnswer(response, target);
  const seen = {
    terms,
    offers: offers.map(({ offer }) => offer),
    charges,
    answered,
    networks: deps.networks,
  };
  const { refusal, ...listed } = await listing(deps, { ...wanted, answered });
  return {
    status: 402,
    findings: [
      ...findings,
      ...terms.findings,
      ...withV1(terms, seen.offers),
      ...offers.flatMap(({ offer }) => offer.findings),
      ...offers.flatMap(({ offer }) => checkFee(offer, deps.fees)),
      ...contradictions(seen.offers),
      ...charges.flatMap((charge, index) => faultOf(charge, offers.length + index + 1)),
      ...around,
      ...checkAnnouncement(terms, refusal),
      ...host.findings,
    ],
    offers: [
      ...offers.map(({ offer, simulation }) => offerWire(offer, simulation)),
      ...charges.map((charge, index) => chargeWire(charge, offers.length + index + 1)),
    ],
    clients: clientsOf(seen),
    listed,
    wellKnown: host.wellKnown,
    about: aboutOf(terms),
  };
}

/** What a settlement of this offer costs its payee here. */
export function checkFee(
  { number, where, isUsdc, isConfigured, amountAtomic }: CheckedOffer,
  fees: FeeTerms,
): Finding[] {
  const fee = isUsdc && isConfigured && amountAtomic !== undefined ? feeOn(fees, amountAtomic) : 0n;
  if (fee === 0n) return [];
  const because = `For this offer it is ${formatAtomic(fee)} USDC.`;
  return [finding("facilitator_fee", where, { offer: number, because })];
}

const nothing = (findings: Finding[], status: number | null): Checked => ({
  status,
  findings,
  offers: [],
  clients: noneOf(findings[0]) satisfies ClientOutlook[],
  listed: {
    wouldBe: false,
    byPayment: false,
    why: "It is listed only once it answers 402 with terms that can be read.",
    listingId: null,
  },
  wellKnown: null,
});

const readMpp = ({ headers }: OutboundResponse, target: TargetRequest): OfferedTerms[] => {
  const header = headers["www-authenticate"];
  return header === undefined ? [] : readCharges(header, target, Date.now()).slice(0, 4);
};

function readAnswer(response: OutboundResponse, target: TargetRequest): TargetResponse | ApiError {
  try {
    return readResponse(response, target);
  } catch (error) {
    if (error instanceof ApiError && error.code !== "internal_error") return error;
    throw error;
  }
}

const listing = async (
  deps: Deps,
  { answered, ...probed }: { url: URL; method: string; answered: TargetResponse | ApiError },
): Promise<WouldList> =>
  "kind" in answered
    ? wouldList(deps, { ...probed, answered })
    : { wouldBe: false, byPayment: false, why: answered.message, listingId: null };

/** Only of use where a network has a name in version 1. */
const withV1 = ({ header, entries }: Terms, offers: readonly CheckedOffer[]): Finding[] =>
  header &&
  !entries.some(({ version }) => version === 1) &&
  offers.some(({ network }) => network?.v1Name !== undefined)
    ? [finding("v2_only", "body")]
    : [];

/** The first offers only: each costs calls to a chain. */
const MOST_ON_CHAIN = 4;

async function checkOffers(
  deps: Deps,
  { entries }: Terms,
): Promise<{ offer: CheckedOffer; simulation: Simulation }[]> {
  const offers = entries.map((entry) => checkOffer(entry, deps));
  const onChain = offers.filter(({ isConfigured }) => isConfigured).slice(0, MOST_ON_CHAIN);
  return Promise.all(
    offers.map(async (offer) => {
      if (offer.isConfigured && !onChain.includes(offer))
        return {
          offer,
          simulation: { result: "not_run" as const, why: "Only the first offers are simulated." },
        };
      const { simulation, findings } = await checkOnChain(deps.chain, offer);
      return { offer: { ...offer, findings: [...offer.findings, ...findings] }, simulation };
    }),
  );
}

interface Answered {
  target: TargetRequest;
  response: OutboundResponse;
  terms: Terms;
  charges: readonly OfferedTerms[];
}

/** Two more requests, as a web page of another origin makes them. */
async function checkAround(
  { send, publicUrl, timeoutMs }: Deps,
  { target, response, terms, charges }: Answered,
): Promise<Finding[]> {
  const origin = new URL(publicUrl).origin;
  const quiet = (request: Parameters<Send>[0]): Promise<OutboundResponse | undefined> =>
    send({ ...request, timeoutMs }).catch(() => undefined);
  const { url, method, body } = target;
  const sent = { url, method, ...(body !== undefined && { body }) };
  const [again, preflight] = await Promise.all([
    quiet({ ...sent, headers: { ...target.headers, origin } }),
    quiet({
      url: target.url,
      method: "OPTIONS",
      headers: {
        origin,
        "access-control-request-method": target.method,
        "access-control-request-headers": terms.header ? "payment-signature" : "x-payment",
      },
    }),
  ]);
  const about = aboutOf(terms);
  const isAgain = again?.status === 402;
  return [
    ...(about ? checkAbout(about, target.url) : []),
    ...checkCaching(response.headers),
    ...(isAgain ? checkSame(terms, readTerms(again, charges.length > 0)) : []),
    ...(terms.entries.length > 0 ? checkBrowsers(again?.headers, preflight?.headers) : []),
  ];
}

const faultOf = ({ refused }: OfferedTerms, offer: number): Finding[] =>
  refused
    ? [
        finding("mpp_refused", "WWW-Authenticate", {
          offer,
          because: CHALLENGE_FAULTS[refused.code],
        }),
      ]
    : [];

const NO_TEXT = { untrusted: true, scheme: "", network: "", asset: "", amount: "" } as const;

function offerWire(offer: CheckedOffer, simulation: Simulation): ValidatedOffer {
  const { number, version, where, fields, network, asset, payTo, isUsdc, amountAtomic } = offer;
  const text = (name: string): string => {
    const value = fields[name];
    return plainWords(typeof value === "number" ? String(value) : value, 100);
  };
  return {
    offer: number,
    where,
    protocol: "x402",
    x402Version: version,
    network: network?.id ?? null,
    networkName: network?.name ?? null,
    asset: asset ? getAddress(asset) : null,
    payTo: payTo ? getAddress(payTo) : null,
    price: isUsdc && amountAtomic !== undefined ? formatAtomic(amountAtomic) : null,
    ...(isMaximum(fields) && { maximum: true as const }),
    simulation,
    thirdParty: {
      ...NO_TEXT,
      scheme: text("scheme"),
      network: text("network"),
      asset: text("asset"),
      amount: text(version === 2 ? "amount" : "maxAmountRequired"),
    },
  };
}

function chargeWire(charge: OfferedTerms, number: number): ValidatedOffer {
  const { network, amount, asset, payTo, scheme } = charge;
  const entry = { number, version: 2 as const, index: 0, where: "WWW-Authenticate" };
  const raw = { scheme, network, amount, asset, payTo };
  const offer = checkOffer({ ...entry, raw }, { networks: [], minPaymentAtomic: 0n });
  const why = "Payments of MPP are not simulated.";
  const wire = offerWire(offer, { result: "not_run", why });
  return { ...wire, protocol: "mpp", x402Version: null };
}

/** An error about no offer concerns all of them. */
const isPayable = (findings: readonly Finding[], offers: readonly ValidatedOffer[]): boolean => {
  const errors = findings.filter(({ severity }) => severity === "error");
  return (
    errors.every(({ offer }) => offer !== null) &&
    offers.some(({ offer }) => errors.every((error) => error.offer !== offer))
  );
};

const ORDER = ["error", "warning", "note"];
const sorted = (findings: readonly Finding[]): Finding[] =>
  [...findings].sort((left, right) => ORDER.indexOf(left.severity) - ORDER.indexOf(right.severity));

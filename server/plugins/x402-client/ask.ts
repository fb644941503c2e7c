/**
 * Asks a target for its price: sends the request, and reads its 402; for a listing, reads only the price.
 * All of it is third-party text: anything that does not parse is invalid, and only checked fields are used.
 */
import { decodePaymentRequiredHeader } from "@x402/core/http";
import { PaymentRequirementsV1Schema, PaymentRequirementsV2Schema } from "@x402/core/schemas";
import type { Address } from "viem";
import { isRecord, parseForeignJson, readForeignJson } from "../../core/foreign-text.ts";
import type { ProbedTerms } from "../listings/index.ts";
import { OutboundError } from "../../infra/outbound/guard.ts";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { ApiError } from "../../errors.ts";
import { chargeAgain, readCharges } from "./challenge.ts";
import { chooseTerms, commonReason, termsOf } from "./choose.ts";
import { contentOfResponse, isRedirect, sellersAnswer, type UpstreamContent } from "./content.ts";
import type { PaymentTerms } from "./job.ts";
import type { SendRequest, TargetRequest } from "./request.ts";
import { bindRoute, type Offer, type OfferedTerms } from "./terms.ts";

type ParsedOffer = { ok: true; offer: Offer } | { ok: false; reason: string };

/** More entries than any seller has; a list of thousands would be a denial-of-service attack. */
const MAX_ENTRIES = 64;
const NO_OFFER: Offer = {
  x402Version: 2,
  accepts: [],
  resource: undefined,
  extensions: undefined,
  error: undefined,
};
const invalid = (reason: string): ParsedOffer => ({ ok: false, reason });

/** Version 2 uses the header; only without it, the body is read as version 1. */
export function parseOffer(header: string | string[] | undefined, body: Buffer): ParsedOffer {
  if (Array.isArray(header)) return invalid("it sends PAYMENT-REQUIRED more than once");
  if (header !== undefined) {
    const read = readForeignJson(() => decodePaymentRequiredHeader(header));
    return read.ok ? readOffer(read.value, 2) : invalid(`its PAYMENT-REQUIRED header ${read.why}`);
  }
  const read = parseForeignJson(body.toString("utf8"));
  return read.ok
    ? readOffer(read.value, 1)
    : invalid(`it has no PAYMENT-REQUIRED header, and its body ${read.why}`);
}

function readOffer(value: unknown, x402Version: 1 | 2): ParsedOffer {
  if (!isRecord(value)) return invalid("it is not an object");
  if (value["x402Version"] !== x402Version) return invalid(`its x402Version is not ${x402Version}`);
  const entries = value["accepts"];
  if (!Array.isArray(entries) || entries.length === 0) return invalid("it lists no payment terms");
  if (entries.length > MAX_ENTRIES) return invalid(`it lists more than ${MAX_ENTRIES} terms`);
  const accepts = entries.flatMap((entry: unknown, index) => {
    const terms = readTerms(entry, x402Version);
    return terms ? [{ ...terms, index }] : [];
  });
  if (accepts.length === 0) return invalid("all of its payment terms are malformed");
  const resource = isRecord(value["resource"]) ? value["resource"] : undefined;
  const extensions = isRecord(value["extensions"]) ? value["extensions"] : undefined;
  const bound = (terms: OfferedTerms): OfferedTerms => {
    const binding = x402Version === 2 ? bindRoute(terms, { resource, extensions }) : undefined;
    return binding ? { ...terms, binding } : terms;
  };
  return {
    ok: true,
    offer: {
      x402Version,
      accepts: accepts.map(bound),
      resource,
      extensions,
      error: typeof value["error"] === "string" ? value["error"].slice(0, 300) : undefined,
    },
  };
}

/** The terms that were last seen for a listing. */
export function offerOf(listing: {
  x402Version: number;
  requirement: Record<string, unknown>;
}): Offer | undefined {
  const x402Version = listing.x402Version === 1 ? 1 : 2;
  const terms = readTerms(listing.requirement, x402Version);
  return terms && { ...NO_OFFER, x402Version, accepts: [terms] };
}

/** The terms that a payment was signed for. */
export function acceptedAgain(terms: PaymentTerms): OfferedTerms | undefined {
  if (terms.protocol === "mpp") return chargeAgain(terms.accepted);
  const { binding } = terms;
  const accepted = readTerms(terms.accepted, terms.x402Version);
  return accepted && binding ? { ...accepted, binding } : accepted;
}

/** A malformed entry does not invalidate the others. */
function readTerms(entry: unknown, x402Version: 1 | 2): OfferedTerms | undefined {
  if (!isRecord(entry)) return undefined;
  if (x402Version === 2) {
    const parsed = PaymentRequirementsV2Schema.safeParse(entry);
    return parsed.success
      ? { ...parsed.data, protocol: "x402", extra: parsed.data.extra ?? {}, raw: entry }
      : undefined;
  }
  const parsed = PaymentRequirementsV1Schema.safeParse(entry);
  if (!parsed.success) return undefined;
  const { maxAmountRequired, extra, ...rest } = parsed.data;
  return { ...rest, protocol: "x402", amount: maxAmountRequired, extra: extra ?? {}, raw: entry };
}

export type TargetResponse =
  | { kind: "free"; seen: UpstreamContent }
  | { kind: "offer"; offer: Offer };

/** Sends one request to the target before anything is signed, and interprets its response. */
export async function requestTarget(
  send: SendRequest,
  target: TargetRequest,
): Promise<TargetResponse> {
  const response = await send(target).catch((error: unknown) => {
    throw error instanceof OutboundError ? upstreamError(error) : error;
  });
  return readResponse(response, target);
}

/** The response to a request without payment. */
export function readResponse(response: OutboundResponse, target: TargetRequest): TargetResponse {
  if (isRedirect(response.status))
    throw new ApiError("upstream_redirect", { extra: sellersAnswer(contentOfResponse(response)) });
  if (response.status !== 402) return { kind: "free", seen: contentOfResponse(response) };
  const parsed = readAnswer(response, target);
  if (!parsed.ok)
    throw new ApiError("upstream_invalid_402", {
      detail: `The target returned 402, but ${parsed.reason}. Nothing was paid.`,
      extra: sellersAnswer(contentOfResponse(response)),
    });
  return { kind: "offer", offer: parsed.offer };
}

/** The terms of both protocols, x402 first: among equal terms the first is paid. */
function readAnswer({ headers, body }: OutboundResponse, target: TargetRequest): ParsedOffer {
  const parsed = parseOffer(headers["payment-required"], body);
  const challenge = headers["www-authenticate"];
  const charges = challenge === undefined ? [] : readCharges(challenge, target, Date.now());
  if (charges.length === 0) return parsed;
  const { offer } = parsed.ok ? parsed : { offer: NO_OFFER };
  return { ok: true, offer: { ...offer, accepts: [...offer.accepts, ...charges] } };
}

/** Maps a failed request to our error; nothing has been paid yet. */
function upstreamError(error: OutboundError): ApiError {
  switch (error.failure) {
    case "blocked":
      return new ApiError("url_blocked", {
        detail: error.message,
        cause: error,
      });
    case "timeout":
      return new ApiError("upstream_timeout", {
        detail: `${error.message}. Nothing was paid.`,
        extra: { paid: false, paymentId: null },
        cause: error,
      });
    default:
      return new ApiError("upstream_error", {
        detail: `${error.message}. Nothing was paid.`,
        cause: error,
      });
  }
}

/** How a probe is made, and which terms it accepts. */
export interface ProbeOptions {
  method: string;
  timeoutMs?: number;
  /** Only terms with this payee are accepted; lower case. */
  payTo?: string;
  network?: string;
  /** Accept MPP terms too. They are valid for one payment, so a listing cannot use them. */
  anyProtocol?: true;
  /** The wallet that would pay, and the network it prefers. */
  wallet?: Address;
  preferredNetwork?: string;
}

/** The request of a probe: without credentials, and without a body unless the caller has one. */
export function probeOf(
  source: string,
  options: Pick<ProbeOptions, "method" | "timeoutMs"> & {
    headers?: Record<string, string>;
    body?: string | undefined;
  },
): TargetRequest {
  if (!URL.canParse(source))
    throw new ApiError("url_blocked", { detail: "This is not a URL that can be fetched" });
  const url = new URL(source);
  url.hash = "";
  return {
    url,
    method: options.method,
    headers: options.headers ?? {},
    omittedHeaders: [],
    body: options.body,
    timeoutMs: options.timeoutMs ?? PROBE_TIMEOUT_MS,
  };
}

export const sendProbe = (send: SendRequest, request: OutboundRequest): Promise<OutboundResponse> =>
  send({ ...request, maxBytes: PROBE_BYTES });

/** Reads the price of a URL without paying and without a body, under the rules of a paid fetch. */
export async function probeTarget(
  deps: { send: SendRequest; networks: readonly NetworkFacts[] },
  source: string,
  options: ProbeOptions,
): Promise<ProbedTerms> {
  const target = probeOf(source, options);
  const answered = await requestTarget((request) => sendProbe(deps.send, request), target);
  return probedTerms(answered, target.url, deps.networks, options);
}

/** The terms of a probe's response that a wallet of this service could pay. */
export function probedTerms(
  answered: TargetResponse,
  url: URL,
  networks: readonly NetworkFacts[],
  options: Omit<ProbeOptions, "method" | "timeoutMs">,
): ProbedTerms {
  if (answered.kind === "free")
    throw new ApiError("upstream_invalid_402", {
      detail: `The target returned ${answered.seen.status} instead of 402: it does not request payment.`,
    });
  const { offer } = answered;
  const choice = chooseTerms(offer, {
    networks,
    wallet: options.wallet,
    preferredNetwork: options.preferredNetwork ?? networks[0]?.id,
    refuse: (chosen) => {
      if (chosen.terms.protocol === "mpp" && !options.anyProtocol)
        return "its challenge works for one payment only";
      if (options.network !== undefined && chosen.network.id !== options.network)
        return "is on a different network";
      return options.payTo !== undefined && chosen.payTo !== options.payTo
        ? "pays a different payee"
        : undefined;
    },
  });
  if (!choice.ok)
    throw new ApiError("unsupported_payment_requirements", {
      detail:
        `Wallets of this service cannot pay any offer of the target (see \`thirdParty.reasons\`). ${commonReason(choice.offers)}`.trimEnd(),
      extra: { thirdParty: { untrusted: true, reasons: choice.reasons } },
    });
  const { raw } = choice.chosen.terms;
  const described = offer.resource ?? raw;
  return {
    ...termsOf(url, choice.chosen),
    x402Version: offer.x402Version,
    requirement: raw,
    name: text(described["serviceName"]),
    description: text(described["description"]),
    mimeType: text(described["mimeType"]),
    tags: Array.isArray(described["tags"])
      ? described["tags"].filter((tag) => typeof tag === "string")
      : [],
    sample: sampleOf(offer.extensions ?? raw["outputSchema"]),
    extensions: bazaarOf(offer.extensions),
    resourceUrl: text(described["url"] ?? described["resource"]),
  };
}

/** A 402 is short, so more is not read. */
const PROBE_BYTES = 256 * 1024;
const PROBE_TIMEOUT_MS = 5_000;

const bazaarOf = (extensions: Record<string, unknown> | undefined): object | null =>
  isRecord(extensions?.["bazaar"]) ? { bazaar: extensions["bazaar"] } : null;

/** An example response, if the seller announces one (x402's bazaar extension). */
function sampleOf(announced: unknown): string | null {
  const bazaar = isRecord(announced) ? announced["bazaar"] : undefined;
  const info = isRecord(bazaar) ? bazaar["info"] : undefined;
  const output = isRecord(info) ? info["output"] : undefined;
  const example = isRecord(output) ? output["example"] : undefined;
  if (example === undefined || example === null) return null;
  return text(typeof example === "string" ? example : JSON.stringify(example));
}

const text = (value: unknown): string | null =>
  typeof value === "string" && value !== "" ? value : null;

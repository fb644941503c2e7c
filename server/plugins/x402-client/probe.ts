/** Asks a URL what it costs, without paying: for listings, under the rules of a paid fetch. */
import { DEFAULT_TIMEOUT_MS } from "../../infra/outbound/outbound.ts";
import { ApiError } from "../../errors.ts";
import type { ProbedTerms } from "../listings/terms.ts";
import { askTarget } from "./ask.ts";
import { chooseTerms } from "./offer.ts";
import { isRecord } from "../../core/foreign-text.ts";
import { termsOf } from "./offer.ts";
import type { ClientDeps } from "./types.ts";

export async function probeTarget(
  deps: Pick<ClientDeps, "ask" | "networks">,
  source: string,
  options: { method: string; timeoutMs?: number },
): Promise<ProbedTerms> {
  if (!URL.canParse(source))
    throw new ApiError("url_blocked", { detail: "This is not a URL that can be fetched" });
  const url = new URL(source);
  url.hash = "";
  const asked = await askTarget((request) => deps.ask(request), {
    url,
    method: options.method,
    headers: {},
    body: undefined,
    timeoutMs: options.timeoutMs ?? DEFAULT_TIMEOUT_MS,
  });
  if (asked.kind === "free")
    throw new ApiError("upstream_invalid_402", {
      detail: `The target answered ${asked.response.status} instead of 402: it asks for no payment.`,
    });
  const { offer } = asked;
  const choice = chooseTerms(offer, {
    networks: deps.networks,
    wallet: undefined,
    preferredNetwork: deps.networks[0]?.id,
  });
  if (!choice.ok)
    throw new ApiError("unsupported_payment_requirements", {
      detail: `The target accepts nothing wallets here can pay: ${choice.reasons.slice(0, 5).join("; ")}`,
      extra: { reasons: choice.reasons },
    });
  const { raw } = choice.chosen.terms;
  const described = offer.resource ?? raw;
  return {
    ...termsOf(url, choice.chosen),
    x402Version: offer.x402Version,
    requirement: raw,
    description: text(described["description"]),
    mimeType: text(described["mimeType"]),
    sample: sampleOf(offer.extensions ?? raw["outputSchema"]),
  };
}

/** An example answer, where the seller announces one (the protocol's bazaar extension). */
function sampleOf(announced: unknown): string | null {
  const bazaar = isRecord(announced) ? announced["bazaar"] : undefined;
  const info = isRecord(bazaar) ? bazaar["info"] : undefined;
  const output = isRecord(info) ? info["output"] : undefined;
  const example = isRecord(output) ? output["example"] : undefined;
  if (example === undefined || example === null) return null;
  return text(typeof example === "string" ? example : JSON.stringify(example));
}

const MAX_TEXT_LENGTH = 1_000;
const text = (value: unknown): string | null =>
  typeof value === "string" && value !== ""
    ? value.replaceAll("\0", "").slice(0, MAX_TEXT_LENGTH)
    : null;

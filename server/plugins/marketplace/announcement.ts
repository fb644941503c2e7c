/**
 * Reads endpoint announcements: a seller that settles here may announce its endpoint in the payment's `bazaar`
 * extension. The payer relays that text, so only its URL is used: it nominates the URL, which our own probe then
 * requests.
 */
import type { PaymentPayload, PaymentRequirements } from "@x402/core/types";
import { extractDiscoveryInfo } from "@x402/extensions/bazaar";
import { isRecord } from "../../core/foreign-text.ts";
import { type NetworkFacts, findNetwork } from "../../core/networks.ts";

/** The seller's URL of a settled payment, and its payee. */
export interface Nomination {
  url: string;
  host: string;
  /** Lower case, like the payer. */
  payTo: string;
  payer: string;
  network: string;
}

/** The protocol's result of an announcement (`EXTENSION-RESPONSES`). */
export type AnnouncementResult =
  | { status: "success" | "processing" }
  | { status: "rejected"; rejectedReason: string };

type ReadAnnouncement =
  | { kind: "none" }
  | { kind: "refused"; reason: string }
  | { kind: "nominated"; nomination: Nomination };

type Requirements = PaymentRequirements & { outputSchema?: unknown };
const MAX_URL_LENGTH = 2_048;
const refused = (reason: string): ReadAnnouncement => ({ kind: "refused", reason });

/** Reads the announcement of a settle request. `payer` is the proven payer. */
export function readAnnouncement(
  body: unknown,
  payer: string,
  networks: readonly NetworkFacts[],
): ReadAnnouncement {
  const request = body as { paymentPayload: PaymentPayload; paymentRequirements: Requirements };
  const { paymentPayload: payload, paymentRequirements: requirements } = request;
  if (!isAnnounced(payload, requirements)) return { kind: "none" };
  let found: ReturnType<typeof extractDiscoveryInfo>;
  try {
    // Without the library's validation, which compiles a third party's JSON schema into code in our process.
    found = extractDiscoveryInfo(payload, requirements, false);
  } catch {
    return refused("The announcement is not a valid bazaar extension.");
  }
  if (!found) return refused("The announcement does not say how to call the resource.");
  if (!("method" in found)) return refused("Only HTTP resources can be listed, not MCP tools.");
  if (found.routeTemplate !== undefined)
    return refused("A routeTemplate covers many endpoints. Announce one endpoint without it.");
  const { method = "GET" }: { method?: unknown } = found;
  if (typeof method !== "string" || method.toUpperCase() !== "GET")
    return refused(
      "Purser probes only GET for an announcement. The seller can list other methods with a file that proves control.",
    );
  const url = URL.canParse(found.resourceUrl) ? new URL(found.resourceUrl) : undefined;
  if (!url || !/^https?:$/.test(url.protocol) || url.username !== "" || url.password !== "")
    return refused("resource.url is not an http(s) URL without credentials.");
  url.hash = "";
  if (url.href.length > MAX_URL_LENGTH)
    return refused(`resource.url is longer than ${MAX_URL_LENGTH} characters.`);
  const network = findNetwork(requirements.network, networks);
  if (!network) return refused("This service does not support the payment's network.");
  return {
    kind: "nominated",
    nomination: {
      url: url.href,
      host: url.host,
      payTo: requirements.payTo.toLowerCase(),
      payer: payer.toLowerCase(),
      network: network.id,
    },
  };
}

/** Version 2 announces in an extension, version 1 in `outputSchema`. */
function isAnnounced(payload: PaymentPayload, requirements: Requirements): boolean {
  const { extensions } = payload as { extensions?: unknown };
  return payload.x402Version === 1
    ? isRecord(requirements.outputSchema)
    : isRecord(extensions) && extensions["bazaar"] !== undefined;
}

/** Why the 402 of an announced URL does not list it, by the resource that it names. */
export const refusedPlace = (url: string, resourceUrl: string | null): string | undefined =>
  resourceUrl === null || isSamePlace(url, resourceUrl)
    ? undefined
    : "The URL's 402 response names a resource at a different host or path.";

/** Whether the URL of a probe and the resource of its 402 have the same host and path. */
export function isSamePlace(url: string, other: string): boolean {
  if (!URL.canParse(other)) return false;
  const left = new URL(url);
  const right = new URL(other);
  const path = ({ pathname }: URL): string => pathname.replace(/\/+$/, "");
  return left.host === right.host && path(left) === path(right);
}

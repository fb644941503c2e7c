/** Checks and stores what a seller signed for a delivery, once the chain has confirmed the payment. */
import type { Hex } from "viem";
import { examine, receiptIn, type KeptEvidence } from "../payments/evidence.ts";
import type { UpstreamContent } from "./content.ts";
import type { SignedJob } from "./deliver.ts";
import type { ClientDeps } from "./request.ts";

/** Checks what the seller signed against the confirmed payment. Undefined if nothing was paid. */
export async function evidenceOf(
  deps: ClientDeps,
  { offer, offered, target, authorization, facts, accepted, fromMs, key }: SignedJob,
  seen: UpstreamContent | undefined,
  txHash: unknown,
): Promise<KeptEvidence | undefined> {
  if (typeof txHash !== "string") return undefined;
  const signed = { offer: offered, receipt: receiptIn(seen?.paymentResponse) };
  return examine(signed, {
    url: target.mcp ? receiptUrlOf(offer.resource, target.url) : target.url,
    wallet: authorization.from,
    networkNames: [facts.network, accepted.network],
    payTo: facts.payTo,
    terms: accepted,
    txHash: txHash as Hex,
    fromMs,
    toMs: Date.now(),
  }).catch((err: unknown) => {
    deps.log.warn({ err, ...key }, "a seller's receipt was not checked");
    return undefined;
  });
}

/** A tool has no URL of its own: its receipt uses the URL that the server's paid terms contain. */
function receiptUrlOf(resource: Record<string, unknown> | undefined, requested: URL): URL {
  const url = resource?.["url"];
  if (typeof url !== "string" || !URL.canParse(url)) return requested;
  const named = new URL(url);
  named.hash = "";
  return named;
}

/** A failure here must not affect the response. */
export const keepEvidence = async (
  deps: ClientDeps,
  { key }: SignedJob,
  evidence: KeptEvidence | undefined,
): Promise<void> =>
  evidence &&
  deps
    .recordEvidence(key, evidence)
    .catch((err: unknown) => deps.log.warn({ err, ...key }, "a seller's receipt was not stored"));

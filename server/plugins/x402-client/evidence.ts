/** What a seller signed, beside a delivery: examined once the chain has confirmed what was paid, and written down. */
import type { Hex } from "viem";
import { examine, receiptIn, type KeptEvidence } from "../payments/evidence.ts";
import type { Seen } from "./content.ts";
import type { SignedJob } from "./deliver.ts";
import type { ClientDeps } from "./request.ts";

/** What the seller signed, held against what the chain has confirmed; of what was not paid there is none. */
export async function evidenceOf(
  deps: ClientDeps,
  { offer, offered, target, authorization, facts, accepted, fromMs, key }: SignedJob,
  seen: Seen | undefined,
  txHash: unknown,
): Promise<KeptEvidence | undefined> {
  if (typeof txHash !== "string") return undefined;
  const signed = { offer: offered, receipt: receiptIn(seen?.paymentResponse) };
  return examine(signed, {
    url: target.mcp ? soldAs(offer.resource, target.url) : target.url,
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

/** A tool has no address of its own: what its server calls it in the terms that were paid, the receipt calls it. */
function soldAs(resource: Record<string, unknown> | undefined, asked: URL): URL {
  const url = resource?.["url"];
  if (typeof url !== "string" || !URL.canParse(url)) return asked;
  const named = new URL(url);
  named.hash = "";
  return named;
}

/** Beside the answer: what fails here costs it nothing. */
export const keepEvidence = async (
  deps: ClientDeps,
  { key }: SignedJob,
  evidence: KeptEvidence | undefined,
): Promise<void> =>
  evidence &&
  deps
    .recordEvidence(key, evidence)
    .catch((err: unknown) => deps.log.warn({ err, ...key }, "a seller's receipt was not stored"));

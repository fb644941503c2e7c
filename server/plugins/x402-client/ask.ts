/** One request to the target before anything was signed, and what its answer means. */
import { OutboundError } from "../../infra/outbound/guard.ts";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";
import { ApiError } from "../../errors.ts";
import { parseOffer, type Offer } from "./offer.ts";
import type { TargetRequest } from "./types.ts";

export type Asked =
  | { kind: "free"; response: OutboundResponse }
  | { kind: "offer"; offer: Offer; response: OutboundResponse };

export async function askTarget(
  ask: (request: OutboundRequest) => Promise<OutboundResponse>,
  target: TargetRequest,
): Promise<Asked> {
  const response = await ask(target).catch((error: unknown) => {
    throw error instanceof OutboundError ? upstreamError(error) : error;
  });
  if (isRedirect(response.status)) throw new ApiError("upstream_redirect");
  if (response.status !== 402) return { kind: "free", response };
  const parsed = parseOffer(response.headers["payment-required"], response.body);
  if (!parsed.ok)
    throw new ApiError("upstream_invalid_402", {
      detail: `The target answered 402, but ${parsed.reason}. Nothing was paid.`,
    });
  return { kind: "offer", offer: parsed.offer, response };
}

/** 304 answers a conditional request and names no other place. */
export const isRedirect = (status: number): boolean =>
  status >= 300 && status < 400 && status !== 304;

/** Why there was no answer, while nothing is paid yet. */
export function upstreamError(error: OutboundError): ApiError {
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

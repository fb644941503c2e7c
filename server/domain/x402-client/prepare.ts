/** From the agent's request to the one that goes to the target. */
import { DEFAULT_TIMEOUT_MS } from "../../adapters/http/outbound.ts";
import { ApiError } from "../../errors.ts";
import type { ListingPins } from "../listings/listings.ts";
import { parsePayable } from "../money.ts";
import { forwardedHeaders } from "./request-headers.ts";
import type { FetchInput, TargetRequest } from "./types.ts";

export interface Prepared {
  target: TargetRequest;
  maxAmountAtomic: bigint | undefined;
}

const BODYLESS = new Set(["GET", "HEAD"]);

export function assertOneTarget(input: FetchInput): void {
  if ((input.url === undefined) === (input.listingId === undefined))
    throw invalid("body", "give exactly one of url and listingId");
}

export function prepare(input: FetchInput, listing: ListingPins | undefined): Prepared {
  const source = listing?.url ?? input.url ?? "";
  if (!URL.canParse(source)) throw invalid("body.url", "is not an absolute URL");
  const method = input.method ?? listing?.method ?? "GET";
  const forwarded = forwardedHeaders(input.headers ?? {});
  if (!forwarded.ok) throw invalid("body.headers", `"${forwarded.name}" ${forwarded.reason}`);
  if (input.body !== undefined && BODYLESS.has(method))
    throw invalid("body.body", `is not sent with ${method}`);
  const { body, contentType } = encodeBody(input.body);
  const headers = forwarded.headers;
  if (body !== undefined) headers["content-type"] ??= contentType;
  const url = new URL(source);
  url.hash = "";
  return {
    target: { url, method, headers, body, timeoutMs: input.timeoutMs ?? DEFAULT_TIMEOUT_MS },
    maxAmountAtomic: readMaxAmount(input.maxAmount),
  };
}

/** A string is sent as it is; everything else is JSON. */
function encodeBody(body: unknown): { body: string | undefined; contentType: string } {
  if (body === undefined) return { body: undefined, contentType: "" };
  if (typeof body === "string") return { body, contentType: "text/plain; charset=utf-8" };
  return { body: JSON.stringify(body), contentType: "application/json" };
}

function readMaxAmount(text: string | undefined): bigint | undefined {
  if (text === undefined) return undefined;
  const parsed = parsePayable(text);
  if (!parsed.ok)
    throw new ApiError("invalid_amount", {
      detail: `body.maxAmount ${parsed.reason}`,
      extra: { errors: [{ path: "body.maxAmount", message: parsed.reason }] },
    });
  return parsed.atomic;
}

const invalid = (path: string, message: string): ApiError =>
  new ApiError("validation_failed", {
    detail: `${path} ${message}`,
    extra: { errors: [{ path, message }] },
  });

/** What an owner wrote about a listing, checked and in one spelling. */
import { ApiError } from "../../errors.ts";
import { parsePayable } from "../../core/money.ts";

/** An absolute http(s) URL without credentials and fragment, as the listing keeps it. */
export function readListingUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || (url.protocol !== "https:" && url.protocol !== "http:"))
    throw invalid("body.url", "must be an absolute http(s) URL");
  if (url.username !== "" || url.password !== "")
    throw invalid("body.url", "must not contain credentials");
  url.hash = "";
  return url;
}

/** The ceiling an owner set; by default the price of today. */
export function readCeiling(text: string | undefined, priceAtomic: bigint): bigint {
  if (text === undefined) return priceAtomic;
  const parsed = parsePayable(text);
  if (!parsed.ok)
    throw new ApiError("invalid_amount", {
      detail: `body.maxPrice ${parsed.reason}`,
      extra: { errors: [{ path: "body.maxPrice", message: parsed.reason }] },
    });
  if (parsed.atomic < priceAtomic)
    throw invalid("body.maxPrice", "is below the price the endpoint asks for");
  return parsed.atomic;
}

export function readMaxPriceFilter(text: string | undefined): bigint | undefined {
  if (text === undefined) return undefined;
  const parsed = parsePayable(text);
  if (!parsed.ok)
    throw new ApiError("invalid_amount", {
      detail: `query.maxPrice ${parsed.reason}`,
      extra: { errors: [{ path: "query.maxPrice", message: parsed.reason }] },
    });
  return parsed.atomic;
}

function invalid(path: string, message: string): ApiError {
  return new ApiError("validation_failed", {
    detail: `${path} ${message}`,
    extra: { errors: [{ path, message }] },
  });
}

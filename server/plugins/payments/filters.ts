import { ApiError } from "../../errors.ts";
import type { PaymentFilters } from "../../schemas/payments.ts";
import { readPage, type PageRequest } from "../../core/paging.ts";

export interface PaymentQuery {
  statuses?: readonly string[];
  kinds?: readonly string[];
  from?: Date;
  to?: Date;
  page: PageRequest;
}

export function readPaymentFilters(query: PaymentFilters): PaymentQuery {
  return {
    statuses: query.status?.split(","),
    kinds: query.kind?.split(","),
    from: readTime(query.from, "query.from"),
    to: readTime(query.to, "query.to"),
    page: readPage(query),
  };
}

const RFC3339 = /^\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}:\d{2}))?$/;

/** A date alone is its first moment in UTC. */
function readTime(text: string | undefined, path: string): Date | undefined {
  if (text === undefined) return undefined;
  const time = RFC3339.test(text) ? new Date(text) : undefined;
  if (time && !Number.isNaN(time.getTime())) return time;
  const message = "must be a time such as 2026-05-01T12:00:00Z or a date";
  throw new ApiError("validation_failed", {
    detail: `${path} ${message}`,
    extra: { errors: [{ path, message }] },
  });
}

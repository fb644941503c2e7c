/**
 * The end of a paid fetch: its response is stored with its key, with what the target did and the end of the ledger's entry, in
 * one statement. `delivered` means that the request has ended (hasEnded in idempotency.ts reads it).
 */
import type { KeptResult, StoredResponse } from "../payments/idempotency.ts";
import type { Confirmed, FetchDeps, Job, SignedPayment } from "./job.ts";
import { endOfFetch, endValues, type FetchEnd } from "./ledger.ts";
import { notePaid } from "./sign-in.ts";

/** Stores the response, and then what the payment allows afterwards. Only the first may fail the request. */
export async function keepAndRecord(
  job: Job,
  payment: SignedPayment,
  confirmed: Confirmed,
): Promise<KeptResult> {
  const { entry, deps, listing, cacheLookup } = job;
  const { key, call } = payment;
  const { payment: paid, seen, evidence } = confirmed;
  const kept = await call.keep(key, confirmed.result, {
    store: (result, stored) =>
      entry.endedWith(result, (end) => endPaid(deps.pool, { payment, confirmed, stored, end })),
  });
  const attempt = (what: string, work: Promise<unknown>): Promise<unknown> =>
    work.catch((err: unknown) => deps.log.warn({ err, ...key }, `${what} not recorded`));
  if (evidence) await attempt("a seller's receipt was", recordEvidence(deps.db, key, evidence));
  if (paid !== "none") await notePaid(job, payment, { isSettled: paid === "settled" });
  if (paid !== "settled" || !seen) return kept;
  // Not awaited: the response must not wait for a counter.
  if (listing) void attempt("use of a listing was", deps.listings.countUse(listing.id));
  if (cacheLookup)
    await attempt("a response for the cache was", cacheLookup.keep(seen, key.paymentId));
  return kept;
}

/** The final response stays as it was stored first. */
const KEEP = `
  UPDATE idempotency_keys SET status_code = $8, response = $9, updated_at = now()
   WHERE subject_id = $5 AND route = $6 AND key = $7 AND status_code IS NULL`;
const DELIVERED = `
  UPDATE payments SET upstream_status = $3, delivered = $4, updated_at = clock_timestamp()
   WHERE agent_id = $1 AND id = $2`;
const VOUCHER_ENDED =
  "SELECT purser_voucher_ended($1, $2, $19::numeric, $20::text, $3, $4, $21::boolean)";

async function endPaid(
  sql: FetchDeps["pool"],
  {
    payment: { key },
    confirmed: { delivery, voucher },
    stored,
    end,
  }: {
    payment: SignedPayment;
    confirmed: Confirmed;
    stored: StoredResponse | undefined;
    end: FetchEnd;
  },
): Promise<void> {
  const { ref, statusCode = null, response = null } = stored ?? {};
  // SQL: part of every paid fetch; prepared, one transaction in one round trip.
  await sql.query({
    name: voucher ? "voucher-fetch-ended" : "paid-fetch-ended",
    text: `WITH kept AS (${KEEP}), entry AS (${endOfFetch(10)}) ${voucher ? VOUCHER_ENDED : DELIVERED}`,
    values: [
      key.agentId,
      key.paymentId,
      delivery.upstreamStatus,
      delivery.delivered,
      ref?.subjectId ?? null,
      ref?.route ?? null,
      ref?.key ?? null,
      statusCode,
      response,
      ...endValues(end),
      ...(voucher
        ? [voucher.chargedAtomic?.toString() ?? null, voucher.reason, voucher.isRefused]
        : []),
    ],
  });
}

async function recordEvidence(
  db: FetchDeps["db"],
  { agentId, paymentId: id }: SignedPayment["key"],
  evidence: NonNullable<Confirmed["evidence"]>,
): Promise<void> {
  const data = { evidence: evidence as object };
  await db.payment.updateMany({ where: { agentId, id }, data });
}

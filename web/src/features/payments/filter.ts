/** The payment filter: as form fields, as the API's query, and as a check of an event. */
import { startOfDay } from "../../lib/time.ts";
import type { Payment } from "../../lib/wire.ts";
import type { PaymentFilter } from "./api.ts";

export const STATUS_OPTIONS = [
  { value: "", label: "Every status" },
  { value: "settled", label: "Settled" },
  { value: "blocked", label: "Blocked" },
  { value: "reserved,submitted,unknown", label: "Open" },
  { value: "voided", label: "Voided" },
];
export const KIND_OPTIONS = [
  { value: "", label: "Every kind" },
  { value: "spend", label: "Payments" },
  { value: "x402", label: "Paid APIs" },
  { value: "withdrawal", label: "Withdrawals" },
  { value: "incoming", label: "Received" },
  { value: "deposit", label: "Deposits into channels" },
];

export interface FilterChoice {
  status: string;
  kind: string;
  /** Dates in the date field's format: YYYY-MM-DD. */
  from: string;
  to: string;
}

/** Days are in the user's time zone; the API receives UTC instants, the end being the next midnight. */
export const toFilter = ({ status, kind, from, to }: FilterChoice): PaymentFilter => ({
  status: status === "" ? undefined : status,
  kind: kind === "" ? undefined : kind,
  from: from === "" ? undefined : startOfDay(from),
  to: to === "" ? undefined : startOfDay(to, 1),
});

/** Whether a changed payment belongs to this list. */
export const fits = (payment: Payment, { status, kind, from, to }: PaymentFilter): boolean =>
  (status === undefined || status.split(",").includes(payment.status)) &&
  (kind === undefined || kind.split(",").includes(payment.kind)) &&
  (from === undefined || payment.createdAt >= from) &&
  (to === undefined || payment.createdAt < to);

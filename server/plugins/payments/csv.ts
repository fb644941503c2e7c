/** Payments as CSV (RFC 4180) that a spreadsheet may open: no cell can start a formula. */
import type { Payment } from "../../schemas/payments.ts";

const COLUMNS: readonly [string, (payment: Payment) => string | null | undefined][] = [
  ["createdAt", (payment) => payment.createdAt],
  ["id", (payment) => payment.id],
  ["agentId", (payment) => payment.agentId],
  ["agent", (payment) => payment.agentName],
  ["kind", (payment) => payment.kind],
  ["status", (payment) => payment.status],
  ["amount", (payment) => payment.amount],
  ["network", (payment) => payment.network],
  ["asset", (payment) => payment.asset],
  ["sender", (payment) => payment.sender],
  ["recipient", (payment) => payment.recipient],
  ["memo", (payment) => payment.memo],
  ["url", (payment) => payment.x402?.url],
  ["txHash", (payment) => payment.txHash],
  ["settledAt", (payment) => payment.settledAt],
  ["denial", (payment) => payment.denial?.code],
  ["failure", (payment) => payment.failure?.code],
  ["apiKey", (payment) => payment.apiKey?.label],
  ["requestId", (payment) => payment.requestId],
];

export const CSV_HEADER = `${COLUMNS.map(([name]) => name).join(",")}\r\n`;

export function csvLine(payment: Payment): string {
  return `${COLUMNS.map(([, read]) => csvCell(read(payment) ?? "")).join(",")}\r\n`;
}

/** What spreadsheets take for the start of a formula; an apostrophe makes it text. */
const FORMULA_START = /^[\s\p{Cf}]*[=+\-@|%\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r\n]/u;

export function csvCell(text: string): string {
  const safe = FORMULA_START.test(text) ? `'${text}` : text;
  return /[",\r\n\t;]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

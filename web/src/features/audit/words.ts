/** Descriptions of audit entries for display. */
import { AGENT_FIELDS } from "../../../../packages/rules/src/fields.ts";
import { shortAddress } from "../../lib/address.ts";
import { SHOW } from "../../lib/orders/terms.ts";
import { formatDateTime } from "../../lib/time.ts";

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** `perPaymentLimit` -> "Per payment limit". */
export const fieldName = (field: string): string => {
  const words = field.replaceAll(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  return words.charAt(0).toUpperCase() + words.slice(1);
};

/** `agent.created` -> "Agent created". */
export const actionName = (action: string): string => fieldName(action.replaceAll(/[._]/g, " "));

/** A rule's setting has its unit, as everywhere else: "2.00 USDC", "1 day". */
export function describeField(name: string, value: unknown): string {
  const kind = AGENT_FIELDS.find((field) => field.name === name)?.kind;
  if (!kind || (value !== null && typeof value !== "string" && typeof value !== "number"))
    return describeValue(value);
  const read = kind.readWire(value);
  return read.ok ? kind.text(read.value, SHOW) : describeValue(value);
}

function describeValue(value: unknown): string {
  if (value === undefined || value === null || value === "") return "none";
  if (Array.isArray(value))
    return value.length === 0 ? "nobody" : value.map(describeValue).join(", ");
  if (isRecord(value)) return describeRecord(value);
  if (typeof value === "string") {
    if (/^\d{4}-\d\d-\d\dT/.test(value)) return formatDateTime(value);
    // Nonces and hashes are shortened too; the export contains them in full.
    return /^0x([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$/.test(value) ? shortAddress(value) : value;
  }
  return JSON.stringify(value);
}

function describeRecord(record: Record<string, unknown>): string {
  const { address, label, prefix, last4 } = record;
  if (typeof address === "string")
    return `${typeof label === "string" && label !== "" ? `${label} ` : ""}${shortAddress(address)}`;
  if (typeof prefix === "string" && typeof last4 === "string") return `${prefix}…${last4}`;
  return Object.entries(record)
    .map(([key, value]) => `${fieldName(key)}: ${describeValue(value)}`)
    .join("; ");
}

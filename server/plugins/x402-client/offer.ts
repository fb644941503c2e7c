/**
 * Reads what a seller asks for. Everything in here was written by a stranger: whatever does not
 * parse is said to be invalid, and nothing of it is used beyond the fields checked.
 */
import { decodePaymentRequiredHeader } from "@x402/core/http";
import { PaymentRequirementsV1Schema, PaymentRequirementsV2Schema } from "@x402/core/schemas";
import { isRecord, readForeignJson } from "../../core/json.ts";

/** One entry of `accepts`, in the words of version 2. */
export interface OfferedTerms {
  scheme: string;
  network: string;
  /** As written: not parsed yet. */
  amount: string;
  asset: string;
  payTo: string;
  maxTimeoutSeconds: number;
  extra: Record<string, unknown>;
  /** The entry as the seller wrote it: a proof must repeat it unchanged. */
  raw: Record<string, unknown>;
}

export interface Offer {
  x402Version: 1 | 2;
  /** Well-formed entries only, in the seller's order. */
  accepts: OfferedTerms[];
  resource: Record<string, unknown> | undefined;
  extensions: Record<string, unknown> | undefined;
  /** What the seller says is wrong, if it says so. */
  error: string | undefined;
}

export type ParsedOffer = { ok: true; offer: Offer } | { ok: false; reason: string };

/** More entries than any seller has; a list of thousands is an attack on our time. */
const MAX_ENTRIES = 64;
const invalid = (reason: string): ParsedOffer => ({ ok: false, reason });

/** Version 2 speaks through the header; only without it a version 1 body is looked for. */
export function parseOffer(header: string | string[] | undefined, body: Buffer): ParsedOffer {
  if (Array.isArray(header)) return invalid("it sends PAYMENT-REQUIRED more than once");
  if (header !== undefined) {
    const read = readForeignJson(() => decodePaymentRequiredHeader(header));
    return read.ok
      ? readOffer(read.value, 2)
      : invalid(`what its PAYMENT-REQUIRED header holds ${read.why}`);
  }
  const read = readForeignJson(() => JSON.parse(body.toString("utf8")) as unknown);
  return read.ok
    ? readOffer(read.value, 1)
    : invalid(`it has no PAYMENT-REQUIRED header, and its body ${read.why}`);
}

function readOffer(value: unknown, x402Version: 1 | 2): ParsedOffer {
  if (!isRecord(value)) return invalid("it is not an object");
  if (value["x402Version"] !== x402Version)
    return invalid(`it does not say x402Version ${x402Version}`);
  const entries = value["accepts"];
  if (!Array.isArray(entries) || entries.length === 0) return invalid("it accepts nothing");
  if (entries.length > MAX_ENTRIES) return invalid(`it lists more than ${MAX_ENTRIES} terms`);
  const accepts = entries.flatMap((entry: unknown) => readTerms(entry, x402Version) ?? []);
  if (accepts.length === 0) return invalid("none of the terms it accepts is well-formed");
  return {
    ok: true,
    offer: {
      x402Version,
      accepts,
      resource: isRecord(value["resource"]) ? value["resource"] : undefined,
      extensions: isRecord(value["extensions"]) ? value["extensions"] : undefined,
      error: typeof value["error"] === "string" ? value["error"].slice(0, 300) : undefined,
    },
  };
}

/** A malformed entry does not spoil its neighbours. */
export function readTerms(entry: unknown, x402Version: 1 | 2): OfferedTerms | undefined {
  if (!isRecord(entry)) return undefined;
  if (x402Version === 2) {
    const parsed = PaymentRequirementsV2Schema.safeParse(entry);
    return parsed.success
      ? { ...parsed.data, extra: parsed.data.extra ?? {}, raw: entry }
      : undefined;
  }
  const parsed = PaymentRequirementsV1Schema.safeParse(entry);
  if (!parsed.success) return undefined;
  const { maxAmountRequired, extra, ...rest } = parsed.data;
  return { ...rest, amount: maxAmountRequired, extra: extra ?? {}, raw: entry };
}

/** Who asks to settle, as far as a retry must prove it: an Idempotency-Key or the protocol's payment identifier. */
import { createHash } from "node:crypto";
import { isValidPaymentId, PAYMENT_IDENTIFIER } from "@x402/extensions/payment-identifier";
import type { SettlementRow } from "../settlement/types.ts";

export interface CallerProof {
  readonly bodyHash: Uint8Array;
  /** Undefined when the request proves nothing. */
  readonly callerKeyHash: Uint8Array | undefined;
}

export function callerProof(
  body: unknown,
  shown: { idempotencyKey?: string | undefined; credential?: string | undefined },
): CallerProof {
  const { paymentPayload, paymentRequirements } = body as Record<string, unknown>;
  const bodyHash = hash(JSON.stringify([paymentPayload, paymentRequirements]));
  const { idempotencyKey, credential = "" } = shown;
  if (idempotencyKey !== undefined)
    return { bodyHash, callerKeyHash: hash(JSON.stringify(["key", credential, idempotencyKey])) };
  const identifier = paymentIdentifier(paymentPayload);
  return {
    bodyHash,
    callerKeyHash:
      identifier === undefined ? undefined : hash(JSON.stringify(["identifier", identifier])),
  };
}

/** Same key and same body as the request that made the settlement. */
export function isSameCaller(row: SettlementRow, proof: CallerProof): boolean {
  return (
    proof.callerKeyHash !== undefined &&
    row.callerKeyHash !== null &&
    row.bodyHash !== null &&
    isEqual(row.callerKeyHash, proof.callerKeyHash) &&
    isEqual(row.bodyHash, proof.bodyHash)
  );
}

const hash = (text: string): Uint8Array => createHash("sha256").update(text).digest();
const isEqual = (left: Uint8Array, right: Uint8Array): boolean => Buffer.compare(left, right) === 0;

/** `extensions["payment-identifier"].info.id` of a payload, when it is one. */
function paymentIdentifier(paymentPayload: unknown): string | undefined {
  const extensions = field(paymentPayload, "extensions");
  const id = field(field(field(extensions, PAYMENT_IDENTIFIER), "info"), "id");
  return typeof id === "string" && isValidPaymentId(id) ? id : undefined;
}

const field = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null
    ? (value as Record<string, unknown>)[name]
    : undefined;

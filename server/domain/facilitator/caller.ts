/**
 * Who asks to settle, as far as a retry must prove it: by an Idempotency-Key, which the seller sets. Nothing
 * inside the payload proves it, the `payment-identifier` extension included: the payer wrote that.
 */
import { createHash } from "node:crypto";
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
  return {
    bodyHash,
    callerKeyHash:
      idempotencyKey === undefined
        ? undefined
        : hash(JSON.stringify(["key", credential, idempotencyKey])),
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

/** Reads what a caller shows as proof of payment, in either version of the protocol. */
import { decodePaymentSignatureHeader } from "@x402/core/http";
import type { PaymentPayload, PaymentRequirements } from "@x402/core/types";
import { isRecord, readForeignJson } from "../foreign-json.ts";
import { findNetwork } from "../networks.ts";

export type Proof =
  | { kind: "none" }
  | { kind: "malformed"; reason: string }
  | { kind: "shown"; version: 1 | 2; payload: PaymentPayload };

/** `accepts` is what the resource asks: version 1 proofs do not repeat it, so it is looked up. */
export function readProof(
  headers: Record<string, string | string[] | undefined>,
  accepts: readonly PaymentRequirements[],
): Proof {
  const v2 = headers["payment-signature"];
  const v1 = headers["x-payment"];
  if (v2 === undefined && v1 === undefined) return { kind: "none" };
  const shown = v2 ?? v1;
  const read =
    typeof shown === "string"
      ? readForeignJson(() => decodePaymentSignatureHeader(shown))
      : undefined;
  const decoded = read?.ok ? read.value : undefined;
  if (!isRecord(decoded) || !isRecord(decoded["payload"]))
    return { kind: "malformed", reason: "invalid_payload" };
  if (decoded["x402Version"] === 2) {
    if (!isRecord(decoded["accepted"])) return { kind: "malformed", reason: "invalid_payload" };
    return { kind: "shown", version: 2, payload: decoded as PaymentPayload };
  }
  if (decoded["x402Version"] !== 1) return { kind: "malformed", reason: "invalid_x402_version" };
  const network = findNetwork(String(decoded["network"]))?.id;
  const accepted = accepts.find(
    (entry) => entry.scheme === decoded["scheme"] && entry.network === network,
  );
  if (!accepted) return { kind: "malformed", reason: "invalid_network" };
  // The signed authorization is the same object in both versions; from here on there is one path.
  const payload = { x402Version: 2, accepted, payload: decoded["payload"] };
  return { kind: "shown", version: 1, payload };
}

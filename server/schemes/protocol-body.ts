/** The frame of a protocol body, which is the same whatever scheme pays. */
import { getAddress, type Address } from "viem";
import { parseAddress } from "../core/address.ts";
import { isRecord } from "../core/json.ts";
import { parseAtomic } from "../core/money.ts";
import type { NetworkFacts } from "../core/networks.ts";
import { refuse, type Refusal } from "./reasons.ts";
import type { Fields, Payment, PresentedParts } from "./scheme.ts";

export const invalid = (message: string, payer?: string): Refusal =>
  refuse("invalid_payload", payer, message);

export function takeApart(body: unknown): PresentedParts | Refusal {
  if (!isRecord(body)) return invalid("The body must be a JSON object.");
  const { paymentPayload, paymentRequirements: requirements } = body;
  if (!isRecord(paymentPayload)) return invalid("paymentPayload must be an object.");
  const version = body["x402Version"] ?? paymentPayload["x402Version"];
  if ((version !== 1 && version !== 2) || (paymentPayload["x402Version"] ?? version) !== version)
    return refuse("invalid_x402_version", payerOf(paymentPayload));
  if (!isRecord(requirements)) return invalid("paymentRequirements must be an object.");
  const accepted = version === 2 ? paymentPayload["accepted"] : paymentPayload;
  if (!isRecord(accepted)) return invalid("paymentPayload.accepted must be an object.");
  const { payload } = paymentPayload;
  if (!isRecord(payload)) return invalid("paymentPayload.payload must be an object.");
  return { version, accepted, payload, requirements };
}

export interface Asked extends Pick<Payment, "payTo" | "amountAtomic"> {
  readonly asset: Address;
}

/** What the seller asks for. */
export function readAsked({ version, requirements }: PresentedParts): Asked | Refusal {
  const asset = parseAddress(requirements["asset"]);
  if (!asset.ok) return invalid(`paymentRequirements.asset ${asset.reason}.`);
  const payTo = parseAddress(requirements["payTo"]);
  if (!payTo.ok) return invalid(`paymentRequirements.payTo ${payTo.reason}.`);
  const amountField = version === 2 ? "amount" : "maxAmountRequired";
  const amountAtomic = parseAtomic(requirements[amountField]);
  if (amountAtomic === undefined || amountAtomic === 0n)
    return invalid(`paymentRequirements.${amountField} must be atomic units above zero.`);
  return { asset: asset.address, payTo: payTo.address, amountAtomic };
}

/** Version 2: a core field of `accepted` that contradicts the requirements. It may leave one out. */
export function contradiction(
  { version, accepted }: PresentedParts,
  asked: Asked,
): "payTo" | "amount" | "asset" | undefined {
  if (version === 1) return undefined;
  const { asset, payTo, amount } = accepted;
  if (payTo !== undefined && lower(payTo) !== asked.payTo) return "payTo";
  if (amount !== undefined && parseAtomic(amount) !== asked.amountAtomic) return "amount";
  if (asset !== undefined && lower(asset) !== asked.asset) return "asset";
  return undefined;
}

/** Version 2 names networks by CAIP-2 id, version 1 by its own names: never the other way round. */
export const findServed = (
  version: 1 | 2,
  name: string,
  networks: readonly NetworkFacts[],
): NetworkFacts | undefined =>
  networks.find((network) => (version === 2 ? network.id === name : network.v1Name === name));

const lower = (value: unknown): unknown =>
  typeof value === "string" ? value.toLowerCase() : value;

export function checksummed(value: unknown): Address | undefined {
  const parsed = parseAddress(value);
  return parsed.ok ? getAddress(parsed.address) : undefined;
}

function payerOf({ payload }: Fields): Address | undefined {
  const authorization = isRecord(payload) ? payload["authorization"] : undefined;
  return isRecord(authorization) ? checksummed(authorization["from"]) : undefined;
}

/** What the caller called the network, also where nothing else was readable. */
export function networkNameOf(body: unknown): string {
  if (!isRecord(body)) return "";
  const { paymentPayload, paymentRequirements } = body;
  for (const holder of [paymentRequirements, paymentPayload]) {
    if (isRecord(holder) && typeof holder["network"] === "string") return holder["network"];
  }
  return "";
}

/**
 * The paywall's part of the x402 protocol, versions 1 and 2: a price becomes terms, and a proof is decoded.
 */
import type {
  AssetAmount,
  Network,
  PaymentRequirements,
  Price,
  SchemeNetworkServer,
  PaymentPayload,
  PaymentRequired,
} from "@x402/core/types";
import { decodePaymentSignatureHeader } from "@x402/core/http";
import { isRecord, readForeignJson } from "./foreign-json.ts";
import { parsePayable } from "./money.ts";
import { findAmong, PAYMENT_NETWORKS, type PaymentNetwork } from "./networks.ts";
import { isForVersion1, type PaywallScheme } from "./scheme.ts";

class PriceError extends Error {
  override name = "PriceError";
}

/**
 * All schemes of one name: the library identifies schemes by name, and `extra` defines how the asset moves.
 */
export class UsdcScheme implements SchemeNetworkServer {
  readonly scheme: string;
  readonly defaultAssetTransferMethod: string;
  readonly paymentFlows: NonNullable<SchemeNetworkServer["paymentFlows"]>;
  /**
   * A facilitator with several accounts may name another one after a restart or on another replica, so this
   * field may differ from the signed terms.
   */
  readonly dynamicExtraFields = ["facilitatorAddress"];
  readonly #networks: readonly PaymentNetwork[];
  readonly #announcedExtra: PaywallScheme["announcedExtra"];

  constructor(name: string, alike: readonly PaywallScheme[], networks: readonly PaymentNetwork[]) {
    this.scheme = name;
    this.defaultAssetTransferMethod = alike[0]?.transferMethod ?? "";
    this.paymentFlows = Object.fromEntries(
      alike.map(({ transferMethod, isMetered }) => {
        const flow = isMetered === true ? "authorization" : "upfront";
        return [transferMethod, { supported: [flow], default: flow }];
      }),
    );
    this.#networks = networks;
    this.#announcedExtra = alike[0]?.announcedExtra;
  }

  async parsePrice(price: Price, network: Network): Promise<AssetAmount> {
    const facts = this.#networks.find((candidate) => candidate.id === network);
    if (!facts) throw new PriceError(`the paywall does not know the network ${network}`);
    const parsed = parsePayable(price);
    if (!parsed.ok) throw new PriceError(`the price ${JSON.stringify(price)} ${parsed.reason}`);
    return { asset: facts.usdc.address, amount: parsed.atomic.toString() };
  }

  /**
   * The payer of a maximum signs the address of the account that may charge it, which the facilitator
   * announces.
   */
  async enhancePaymentRequirements(
    requirements: PaymentRequirements,
    { extra }: { extra?: Record<string, unknown> },
  ): Promise<PaymentRequirements> {
    const announced = this.#announcedExtra?.(requirements, extra ?? {});
    if (announced) return { ...requirements, extra: { ...requirements.extra, ...announced } };
    const facilitatorAddress = facilitatorOf(extra);
    if (facilitatorAddress === undefined) return requirements;
    return { ...requirements, extra: { ...requirements.extra, facilitatorAddress } };
  }
}

/** The facilitator's account that the payer has to name, from the `extra` of a supported kind. */
export function facilitatorOf(extra: Record<string, unknown> | undefined): string | undefined {
  const address = extra?.["facilitatorAddress"];
  return typeof address === "string" ? address : undefined;
}

/** How the proof was sent, and so how its receipt is returned: by a version of x402, or by MPP. */
export type ProofVersion = 1 | 2 | "mpp";

export type Proof =
  | { kind: "none" }
  | { kind: "malformed"; reason: string }
  | { kind: "shown"; version: ProofVersion; payload: PaymentPayload };

/**
 * `accepts`: the terms of the resource. A version 1 proof does not repeat them, so its entry is looked up
 * here.
 */
export function readProof(
  headers: Record<string, string | string[] | undefined>,
  accepts: readonly PaymentRequirements[],
): Proof {
  const v2 = headers["payment-signature"];
  const v1 = headers["x-payment"];
  if (v2 === undefined && v1 === undefined) return { kind: "none" };
  const header = v2 ?? v1;
  const read =
    typeof header === "string"
      ? readForeignJson(() => decodePaymentSignatureHeader(header))
      : undefined;
  const decoded = read?.ok ? read.value : undefined;
  if (!isRecord(decoded) || !isRecord(decoded["payload"]))
    return { kind: "malformed", reason: "invalid_payload" };
  if (decoded["x402Version"] === 2) {
    if (!isRecord(decoded["accepted"])) return { kind: "malformed", reason: "invalid_payload" };
    return { kind: "shown", version: 2, payload: decoded as PaymentPayload };
  }
  if (decoded["x402Version"] !== 1) return { kind: "malformed", reason: "invalid_x402_version" };
  const network = findAmong(String(decoded["network"]), PAYMENT_NETWORKS)?.id;
  const accepted = accepts.find(
    (entry) =>
      isForVersion1(entry) && entry.scheme === decoded["scheme"] && entry.network === network,
  );
  if (!accepted) return { kind: "malformed", reason: "invalid_network" };
  // The signed authorization is the same object in both versions, so one code path handles both from here on.
  const payload = { x402Version: 2, accepted, payload: decoded["payload"] };
  return { kind: "shown", version: 1, payload };
}

/**
 * The body of an unpaid response. Version 2 does not define one (its terms are in the header), so this is a
 * version 1 body with the version 2 names beside it: clients that read only bodies find the terms that
 * version 1 can pay. A network without a version 1 name appears as its CAIP-2 id, which a version 1 client
 * refuses.
 */
export function v1Body({ accepts, error, resource }: PaymentRequired): object {
  return {
    x402Version: 1,
    error: error ?? "Payment required",
    accepts: accepts.filter(isForVersion1).map((entry) => ({
      scheme: entry.scheme,
      network: findAmong(entry.network, PAYMENT_NETWORKS)?.v1Name ?? entry.network,
      maxAmountRequired: entry.amount,
      amount: entry.amount,
      resource: resource.url,
      description: resource.description ?? "",
      mimeType: resource.mimeType ?? "",
      payTo: entry.payTo,
      maxTimeoutSeconds: entry.maxTimeoutSeconds,
      asset: entry.asset,
      extra: entry.extra,
    })),
    resource,
    help: "Version 2 clients: the terms are in the PAYMENT-REQUIRED header; send the proof in PAYMENT-SIGNATURE.",
  };
}

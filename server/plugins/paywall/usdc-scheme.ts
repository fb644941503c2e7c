/**
 * A scheme of ours as the protocol library's resource server wants it, priced from our own network table, so
 * that Arc works as well as the networks of the stock asset table. The flow is `upfront`: settled before
 * anything is served.
 */
import type {
  AssetAmount,
  Network,
  PaymentRequirements,
  Price,
  SchemeNetworkServer,
} from "@x402/core/types";
import { parsePayable } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { Scheme } from "../../schemes/scheme.ts";

export class PriceError extends Error {
  override name = "PriceError";
}

export class UsdcScheme implements SchemeNetworkServer {
  readonly scheme: string;
  readonly defaultAssetTransferMethod: string;
  readonly paymentFlows: NonNullable<SchemeNetworkServer["paymentFlows"]>;
  readonly #own: Scheme;
  readonly #networks: readonly NetworkFacts[];

  constructor(own: Scheme, networks: readonly NetworkFacts[]) {
    this.scheme = own.name;
    this.defaultAssetTransferMethod = own.transferMethod;
    this.paymentFlows = {
      [own.transferMethod]: { supported: ["upfront"], default: "upfront" },
    };
    this.#own = own;
    this.#networks = networks;
  }

  async parsePrice(price: Price, network: Network): Promise<AssetAmount> {
    const facts = this.#networks.find((candidate) => candidate.id === network);
    if (!facts) throw new PriceError(`the paywall knows no network ${network}`);
    const parsed = parsePayable(price);
    if (!parsed.ok) throw new PriceError(`the price ${JSON.stringify(price)} ${parsed.reason}`);
    return {
      asset: facts.usdc.address,
      amount: parsed.atomic.toString(),
      extra: this.#own.requirementExtra(facts),
    };
  }

  async enhancePaymentRequirements(
    requirements: PaymentRequirements,
  ): Promise<PaymentRequirements> {
    return requirements;
  }
}

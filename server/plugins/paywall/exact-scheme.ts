/**
 * The `exact` scheme over EIP-3009, priced from our own network table, so that Arc works as well as
 * the networks of the stock asset table. The flow is `upfront`: settled before anything is served.
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

export class PriceError extends Error {
  override name = "PriceError";
}

export class ExactUsdcScheme implements SchemeNetworkServer {
  readonly scheme = "exact";
  readonly defaultAssetTransferMethod = "eip3009";
  readonly paymentFlows = {
    eip3009: { supported: ["upfront"], default: "upfront" },
  } as const;
  readonly #networks: readonly NetworkFacts[];

  constructor(networks: readonly NetworkFacts[]) {
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
      extra: { name: facts.usdc.name, version: facts.usdc.version },
    };
  }

  async enhancePaymentRequirements(
    requirements: PaymentRequirements,
  ): Promise<PaymentRequirements> {
    return requirements;
  }
}

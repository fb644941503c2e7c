/** The protocol library's resource server, made again when offers change because another facilitator is the first to work. */
import { type FacilitatorClient, x402ResourceServer } from "@x402/core/server";
import type { SupportedResponse } from "@x402/core/types";
import { bazaarResourceServerExtension } from "@x402/extensions/bazaar";
import { asFault } from "./answers.ts";
import { FailoverFacilitatorClient } from "./failover.ts";
import type { PaymentNetwork } from "./networks.ts";
import { UsdcScheme } from "./protocol.ts";
import type { PaywallScheme } from "./scheme.ts";

interface ServerDeps {
  facilitator: FacilitatorClient;
  networks: readonly PaymentNetwork[];
  schemes: readonly PaywallScheme[];
}

export class ResourceServer {
  readonly #deps: ServerDeps;
  /** Where the facilitator is a list. */
  readonly failover: FailoverFacilitatorClient | undefined;
  #current: x402ResourceServer;
  #basis: SupportedResponse | undefined;
  #ready: Promise<void> | undefined;

  constructor(deps: ServerDeps) {
    this.#deps = deps;
    this.failover =
      deps.facilitator instanceof FailoverFacilitatorClient ? deps.facilitator : undefined;
    this.#current = this.#create();
  }

  get current(): x402ResourceServer {
    return this.#current;
  }

  /** Reads what the facilitator supports; after a failure the next request tries again. */
  ready(): Promise<void> {
    const offered = this.failover?.offered;
    if (this.#ready && (offered === this.#basis || this.#basis === undefined)) return this.#ready;
    this.#basis = offered;
    this.#ready = this.#initialize().catch((error: unknown) => {
      this.#ready = undefined;
      throw asFault(error, 503, "The facilitator's supported payments cannot be read.");
    });
    return this.#ready;
  }

  async #initialize(): Promise<void> {
    const server = this.#create();
    await server.initialize();
    // Only now: other requests use the one before meanwhile.
    this.#current = server;
    this.#basis = this.failover?.offered;
  }

  #create(): x402ResourceServer {
    const { facilitator, networks, schemes } = this.#deps;
    const server = new x402ResourceServer(facilitator);
    for (const name of new Set(schemes.map((scheme) => scheme.name))) {
      const sameName = schemes.filter((scheme) => scheme.name === name);
      const scheme = new UsdcScheme(name, sameName, networks);
      for (const network of networks) server.register(network.id, scheme);
    }
    return server.registerExtension(bazaarResourceServerExtension);
  }
}

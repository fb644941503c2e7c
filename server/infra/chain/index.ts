import fp from "fastify-plugin";
import { BaseError, ContractFunctionExecutionError } from "viem";
import { createChainClient, type ChainClient } from "./clients.ts";
import { checkTokenDomain } from "./token.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** The configured networks in order; the first is the agents' default. */
    chains: Chains;
  }
}

export class Chains {
  readonly all: readonly [ChainClient, ...ChainClient[]];
  /** Networks whose token domain has been compared with ours (an RPC may be down at boot). */
  readonly verified = new Set<number>();

  constructor(all: [ChainClient, ...ChainClient[]]) {
    this.all = all;
  }
  get default(): ChainClient {
    return this.all[0];
  }
  byChainId(chainId: number | bigint): ChainClient | undefined {
    return this.all.find((chain) => chain.network.chainId === Number(chainId));
  }
  /** By CAIP-2 id or version 1 name. */
  byNetwork(id: string): ChainClient | undefined {
    return this.all.find(
      (chain) =>
        chain.network.id === id ||
        (chain.network.v1Name !== undefined && chain.network.v1Name === id),
    );
  }
}

export class TokenDomainMismatch extends Error {
  override name = "TokenDomainMismatch";
}

const RECHECK_MS = 5_000;

export default fp(
  async (app) => {
    const [first, ...rest] = app.config.networks.map(createChainClient);
    if (!first) throw new Error("no network is configured");
    const chains = new Chains([first, ...rest]);
    app.decorate("chains", chains);

    const check = async (chain: ChainClient): Promise<void> => {
      const result = await checkTokenDomain(chain);
      if (!result.ok) {
        throw new TokenDomainMismatch(
          `The token ${chain.network.usdc.address} on ${chain.network.name} has DOMAIN_SEPARATOR ${result.actual}, expected ${result.expected}. Is the RPC endpoint of another chain?`,
        );
      }
      chains.verified.add(chain.network.chainId);
    };

    // An RPC that is down at boot does not stop the service: it is checked when it answers.
    const recheck = async (): Promise<void> => {
      for (const chain of chains.all) {
        if (chains.verified.has(chain.network.chainId)) continue;
        await check(chain).catch((error: unknown) => {
          if (!isTransport(error))
            app.log.fatal(
              { err: error, network: chain.network.id },
              "token domain check failed; this network stays closed",
            );
        });
      }
      if (chains.verified.size === chains.all.length) clearInterval(timer);
    };
    const timer = setInterval(() => void recheck(), RECHECK_MS).unref();
    app.addHook("onClose", async () => clearInterval(timer));

    for (const chain of chains.all) {
      try {
        await check(chain);
      } catch (error) {
        if (!isTransport(error)) throw asMismatch(error, chain);
        app.log.warn(
          { network: chain.network.id, reason: shortMessage(error) },
          "RPC unreachable at boot; will check its token later",
        );
      }
    }
    if (chains.verified.size === chains.all.length) clearInterval(timer);
  },
  { name: "chain" },
);

const shortMessage = (error: unknown): string =>
  error instanceof BaseError ? error.shortMessage : String(error);

/** The RPC did not answer, in contrast to: it answered, and there is no such token there. */
function isTransport(error: unknown): boolean {
  if (error instanceof TokenDomainMismatch) return false;
  if (!(error instanceof BaseError)) return false;
  return (
    error.walk(
      (cause) =>
        cause instanceof Error &&
        ["HttpRequestError", "TimeoutError", "RpcRequestError", "SocketClosedError"].includes(
          cause.name,
        ),
    ) !== null
  );
}

function asMismatch(error: unknown, chain: ChainClient): unknown {
  if (!(error instanceof ContractFunctionExecutionError)) return error;
  return new TokenDomainMismatch(
    `There is no USDC token at ${chain.network.usdc.address} on ${chain.network.name}: ${error.shortMessage}`,
    { cause: error },
  );
}

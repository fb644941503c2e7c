/**
 * The demo wallet of a local service: the server publishes its key there and nowhere else, so that new users
 * need no browser extension. The key is in memory only, and the wallet implements EIP-1193 like any other.
 */
import { privateKeyToAccount } from "viem/accounts";
import type { TypedDataDefinition } from "viem";
import type { LocalInfo } from "../wire.ts";
import type { Provider } from "./provider.ts";

const first = (params: unknown, index: number): unknown =>
  Array.isArray(params) ? (params as unknown[])[index] : undefined;

const asText = (value: unknown): string => {
  if (typeof value !== "string") throw new TypeError("The demo wallet expected text.");
  return value;
};

const chainIdIn = (params: unknown): string =>
  asText((first(params, 0) as { chainId?: unknown } | undefined)?.chainId);

export function demoProvider(local: LocalInfo, firstChainId: number): Provider {
  let chainId = `0x${firstChainId.toString(16)}`;
  const onChain = new Set<(chainId: string) => void>();
  const account = privateKeyToAccount(local.demoOwnerPrivateKey as `0x${string}`);
  return {
    on: (event, listener) => {
      if (event === "chainChanged") onChain.add(listener);
    },
    removeListener: (_event, listener) => {
      onChain.delete(listener);
    },
    async request({ method, params }) {
      switch (method) {
        case "eth_requestAccounts":
        case "eth_accounts":
          return [account.address];
        case "eth_chainId":
          return chainId;
        case "personal_sign":
          return account.signMessage({
            message: { raw: asText(first(params, 0)) as `0x${string}` },
          });
        case "eth_signTypedData_v4":
          return account.signTypedData(JSON.parse(asText(first(params, 1))) as TypedDataDefinition);
        case "wallet_switchEthereumChain":
          chainId = chainIdIn(params);
          for (const listener of onChain) listener(chainId);
          return null;
        case "wallet_addEthereumChain":
          return null;
        default:
          throw Object.assign(new Error(`The demo wallet does not support ${method}.`), {
            code: 4200,
          });
      }
    },
  };
}

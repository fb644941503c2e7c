import { USDC_DECIMALS } from "../../core/money.ts";
import { plainText, quoted } from "../../core/quoted.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { Fields } from "../scheme.ts";

/** What `extra.assetTransferMethod` calls an EIP-3009 transfer. */
export const TRANSFER_METHOD = "eip3009";

/**
 * `extra` never changes what is signed; the domain is from our own table. But where it describes
 * another contract or another way to move the asset, the entry means something else than a plain
 * EIP-3009 transfer of this token (for example GatewayWalletBatched), and is not ours to sign.
 */
export function whyNotPayable(extra: Fields, network: NetworkFacts): string | undefined {
  const { usdc, chainId } = network;
  const differs = (name: string, expected: string): boolean => {
    const given = extra[name];
    if (given === undefined || given === null) return false;
    return plainText(given)?.toLowerCase() !== expected.toLowerCase();
  };
  if (differs("name", usdc.name)) return `token name ${quoted(extra["name"])} is not ${usdc.name}`;
  if (differs("version", usdc.version)) return `token version is not ${usdc.version}`;
  if (differs("verifyingContract", usdc.address)) return "verifyingContract is not the token";
  if (differs("chainId", String(chainId))) return "chainId is not the network's";
  if (differs("decimals", String(USDC_DECIMALS))) return "decimals are not those of USDC";
  if (differs("assetTransferMethod", TRANSFER_METHOD))
    return `transfer method ${quoted(extra["assetTransferMethod"])} is not supported`;
  return undefined;
}

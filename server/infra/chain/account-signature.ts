import { hashMessage, isAddressEqual, recoverAddress, type Address, type Hex } from "viem";
import { verifyHash } from "viem/actions";
import type { ChainClient, Chains } from "./index.ts";

/**
 * `key`: the account's own key signed, which is the same account on every chain. `contract`: code on the chain that was
 * asked vouches for it, and for that chain only. `unavailable`: the chain could not say; that is no verdict.
 */
export type SignatureVerdict = "key" | "contract" | "invalid" | "unavailable";

const MAX_MS = 5_000;

/** An owner: an address, and the chain whose contract it is; 0 for one that has a key. */
export interface AccountIdentity {
  address: Address;
  chainId: number;
}

/** Did this owner sign this hash? Only what made it this owner counts: its key, or its contract on its chain. */
export async function isSignedByOwner(
  chains: Pick<Chains, "byChainId" | "verified">,
  { address, chainId }: AccountIdentity,
  signed: { hash: Hex; signature: Hex },
): Promise<"valid" | "invalid" | "unavailable"> {
  if (chainId === 0)
    return (await isSignedByKey(address, signed.hash, signed.signature)) ? "valid" : "invalid";
  const chain = chains.byChainId(chainId);
  if (!chain || !chains.verified.has(chainId)) return "unavailable";
  const verdict = await verifyAccountSignature(chain, { address, ...signed });
  if (verdict === "contract") return "valid";
  return verdict === "key" ? "invalid" : verdict;
}

/**
 * Did this account sign this hash? Keys (EOA) are checked in this process, so that they work while
 * the RPC is down. Only then is the chain asked: deployed contracts (ERC-1271), and ones that will be
 * deployed by the factory the signature names (ERC-6492).
 */
export async function verifyAccountSignature(
  chain: ChainClient,
  { address, hash, signature }: { address: Address; hash: Hex; signature: Hex },
  timeoutMs = MAX_MS,
): Promise<SignatureVerdict> {
  if (await isSignedByKey(address, hash, signature)) return "key";
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<SignatureVerdict>((resolve) => {
    timer = setTimeout(() => resolve("unavailable"), timeoutMs);
  });
  return Promise.race([readFromChain(chain, { address, hash, signature }), late]).finally(() =>
    clearTimeout(timer),
  );
}

export const verifyAccountMessage = (
  chain: ChainClient,
  { address, message, signature }: { address: Address; message: string; signature: Hex },
  timeoutMs?: number,
): Promise<SignatureVerdict> =>
  verifyAccountSignature(chain, { address, hash: hashMessage(message), signature }, timeoutMs);

const ERC6492_SUFFIX = "6492649264926492649264926492649264926492649264926492649264926492";

async function readFromChain(
  { client }: ChainClient,
  args: { address: Address; hash: Hex; signature: Hex },
): Promise<SignatureVerdict> {
  try {
    // A plain key that did not sign costs one read, not a simulation.
    const code = await client.getCode({ address: args.address });
    if (code === undefined && !args.signature.endsWith(ERC6492_SUFFIX)) return "invalid";
    if (await verifyHash(client, args)) return "contract";
    // viem answers false for a failed call as well: only a chain that still answers said "no".
    await client.getBlockNumber();
    return "invalid";
  } catch {
    return "unavailable";
  }
}

/** Code of its own; a key that lent itself code (EIP-7702) is still a key, the same on every chain. */
export async function isContractAt({ client }: ChainClient, address: Address): Promise<boolean> {
  const code = await client.getCode({ address });
  return code !== undefined && !code.startsWith(DELEGATED);
}
const DELEGATED = "0xef0100";

export async function isSignedByKey(address: Address, hash: Hex, signature: Hex): Promise<boolean> {
  if (signature.length !== 132) return false;
  try {
    return isAddressEqual(address, await recoverAddress({ hash, signature }));
  } catch {
    return false;
  }
}

import { hashMessage, isAddressEqual, recoverAddress, type Address, type Hex } from "viem";
import { verifyHash } from "viem/actions";
import type { ChainClient, Chains } from "./index.ts";

/**
 * Verifies the signature of an account: a plain key, or a smart account (ERC-1271, ERC-6492).
 * `key`: the account's own key (EOA) signed, so the verdict holds on every chain. `contract`: a contract on the queried
 * chain accepted the signature, for that chain only. `unavailable`: the chain did not answer, so nothing is decided.
 */
export type SignatureVerdict = "key" | "contract" | "invalid" | "unavailable";

const MAX_MS = 5_000;

/** An owner: an address, plus the chain of its contract, or 0 if it is a plain key (EOA). */
interface AccountIdentity {
  address: Address;
  chainId: number;
}

/**
 * Returns whether this owner signed the hash. Only the identity that registered counts: the key, or the contract on its
 * chain.
 */
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
 * Verifies the account's signature of a hash. EOA signatures are checked in this process, so they work while the RPC is
 * down. Otherwise the chain is called: for deployed contracts (ERC-1271), and for contracts that the factory named in
 * the signature will deploy (ERC-6492).
 */
async function verifyAccountSignature(
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
    // An account without code whose key did not sign costs one read, not a simulation.
    const code = await client.getCode({ address: args.address });
    if (code === undefined && !args.signature.endsWith(ERC6492_SUFFIX)) return "invalid";
    if (await verifyHash(client, args)) return "contract";
    // viem also returns false when the call fails. Only a chain that still responds has rejected the signature.
    await client.getBlockNumber();
    return "invalid";
  } catch {
    return "unavailable";
  }
}

async function isSignedByKey(address: Address, hash: Hex, signature: Hex): Promise<boolean> {
  if (signature.length !== 132) return false;
  try {
    return isAddressEqual(address, await recoverAddress({ hash, signature }));
  } catch {
    return false;
  }
}

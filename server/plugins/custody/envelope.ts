import { randomBytes } from "node:crypto";
import type { Hex } from "viem";
import { decrypt, encrypt, KEY_BYTES } from "./boxes.ts";
import { doesNotOpen, type Bound, type KeyRing } from "./key-ring.ts";

export { CustodyError, NotSignedFor } from "./boxes.ts";
export { KeyRing } from "./key-ring.ts";

/**
 * Envelope encryption of wallet keys. Each wallet has its own random data key, which encrypts the private key; a master
 * key (`kid`) wraps the data key, here or in a KMS. Rotation only re-wraps data keys. Both layers are bound to agent id
 * and address, so nothing can be decrypted in another row. The wrapping is also bound to its seal: the agent's owner,
 * what that owner signed, and which part of it is in force (docs/decisions/0020).
 */

/** The facts to which a wrapped key is bound; changed only together with them, in the same transaction. */
export interface Seal {
  /** In lower case; with the chain of a contract, or 0 for a plain key. */
  ownerAddress: string;
  ownerChainId: number;
  /** The digest of the policy in force. */
  policyDigest: Hex;
  /** The digest of the rules in force: the policy, narrowed by the owner's later restrictions. */
  rulesDigest: Hex;
  /** Increases by one with every change. */
  revision: number;
}

export const NOTHING: Hex = `0x${"0".repeat(64)}`;
/** The seal of a wallet whose owner has not signed a policy yet: it can only be sealed for its first policy. */
export const unsigned = (owner: { address: string; chainId: number }): Seal => ({
  ownerAddress: owner.address,
  ownerChainId: owner.chainId,
  policyDigest: NOTHING,
  rulesDigest: NOTHING,
  revision: 0,
});

/** Identifies the key: the additional authenticated data of both layers. The address is in lower case. */
export interface WalletName extends Seal {
  agentId: string;
  address: string;
}

export interface SealedWallet {
  kid: string;
  wrappedDataKey: Uint8Array;
  ciphertext: Uint8Array;
}

export async function sealWallet(
  ring: KeyRing,
  wallet: WalletName,
  privateKey: Uint8Array,
): Promise<SealedWallet> {
  const dataKey = randomBytes(KEY_BYTES);
  try {
    const ciphertext = encrypt(dataKey, privateKey, keyName(wallet));
    const { kid, wrapped } = await ring.wrap(dataKey, boundTo(wallet));
    return { kid, wrappedDataKey: wrapped, ciphertext };
  } finally {
    dataKey.fill(0);
  }
}

/** Decrypts the private key for the duration of `use`, then overwrites it. */
export async function withPrivateKey<T>(
  ring: KeyRing,
  wallet: WalletName,
  sealed: SealedWallet,
  use: (privateKey: Uint8Array) => T,
): Promise<T> {
  const dataKey = await ring.unwrap(wrappedOf(sealed), boundTo(wallet));
  let privateKey: Uint8Array | undefined;
  try {
    privateKey = openKey(dataKey, sealed, wallet);
    return use(privateKey);
  } finally {
    dataKey.fill(0);
    privateKey?.fill(0);
  }
}

/**
 * Re-wraps a wallet under the active master key, and for a new seal if one is given; the private key is not decrypted.
 */
export async function rewrapWallet(
  ring: KeyRing,
  wallet: WalletName,
  sealed: SealedWallet,
  seal: Seal = wallet,
): Promise<SealedWallet> {
  const next = boundTo({ ...wallet, ...seal });
  const { kid, wrapped } = await ring.rewrap(wrappedOf(sealed), boundTo(wallet), next);
  return { kid, wrappedDataKey: wrapped, ciphertext: sealed.ciphertext };
}

const wrappedOf = ({ kid, wrappedDataKey }: SealedWallet) => ({ kid, wrapped: wrappedDataKey });

function openKey(dataKey: Uint8Array, sealed: SealedWallet, wallet: WalletName): Uint8Array {
  try {
    return decrypt(dataKey, sealed.ciphertext, keyName(wallet));
  } catch (error) {
    throw doesNotOpen("private key", wallet.agentId, error);
  }
}

const keyName = ({ agentId, address }: WalletName): Buffer =>
  Buffer.from(`purser:wallet-key:v1|${agentId}|${address}`);
const boundTo = (wallet: WalletName): Bound => ({
  of: wallet.agentId,
  name: (kid) =>
    Buffer.from(
      [
        "purser:data-key:v2",
        kid,
        wallet.agentId,
        wallet.address,
        wallet.ownerAddress,
        wallet.ownerChainId,
        wallet.policyDigest,
        wallet.rulesDigest,
        wallet.revision,
      ].join("|"),
    ),
});

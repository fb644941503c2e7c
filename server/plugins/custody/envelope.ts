import { randomBytes, createCipheriv, createDecipheriv } from "node:crypto";
import type { Hex } from "viem";
import type { MasterKey } from "../../core/master-keys.ts";

/**
 * Envelope encryption of wallet keys. Each wallet has a random data key of its own, which encrypts
 * the private key; a master key (`kid`) wraps the data key. Rotation re-wraps data keys only.
 * Both layers are AES-256-GCM bound to agent id and address, so nothing opens in another row. The wrapping is bound to
 * its seal as well: whose agent it is, what that owner signed, and what of it is in force (docs/decisions/0020).
 */

const ALGORITHM = "aes-256-gcm";
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
const KEY_BYTES = 32;
const BOX_BYTES = NONCE_BYTES + TAG_BYTES + KEY_BYTES;

/** A wallet that cannot be opened, or is not what it claims to be. Nothing is signed. */
export class CustodyError extends Error {
  override name = "CustodyError";
}

/** The owner's signature does not cover it, as far as our own books can be believed: an alarm. */
export class NotSignedFor extends CustodyError {}

/** What the wrapping stands for; changed only with what it names, in the same transaction. */
export interface Seal {
  /** In lower case; with the chain of a contract, 0 for a key. */
  ownerAddress: string;
  ownerChainId: number;
  /** Of the policy in force. */
  policyDigest: Hex;
  /** Of the rules in force: the policy, narrowed by what the owner took back since. */
  rulesDigest: Hex;
  /** One more with every change. */
  revision: number;
}

export const NOTHING: Hex = `0x${"0".repeat(64)}`;
/** Of a wallet whose owner has signed nothing yet: it opens for nothing but its first policy. */
export const unsigned = (owner: { address: string; chainId: number }): Seal => ({
  ownerAddress: owner.address,
  ownerChainId: owner.chainId,
  policyDigest: NOTHING,
  rulesDigest: NOTHING,
  revision: 0,
});

/** Whose key it is: the additional data of both layers. The address is in lower case. */
export interface WalletName extends Seal {
  agentId: string;
  address: string;
}

export interface SealedWallet {
  kid: string;
  wrappedDataKey: Uint8Array;
  ciphertext: Uint8Array;
}

export class KeyRing {
  readonly #keys: ReadonlyMap<string, Uint8Array>;
  readonly active: MasterKey;

  constructor(keys: readonly MasterKey[], activeKid: string) {
    this.#keys = new Map(keys.map(({ kid, key }) => [kid, key]));
    const active = keys.find(({ kid }) => kid === activeKid);
    if (!active) throw new CustodyError(`master key "${activeKid}" is not configured`);
    this.active = active;
  }

  get(kid: string): Uint8Array {
    const key = this.#keys.get(kid);
    if (!key)
      throw new CustodyError(`a wallet is wrapped by master key "${kid}", which is not configured`);
    return key;
  }
}

export function sealWallet(
  ring: KeyRing,
  wallet: WalletName,
  privateKey: Uint8Array,
): SealedWallet {
  const dataKey = randomBytes(KEY_BYTES);
  try {
    return {
      kid: ring.active.kid,
      wrappedDataKey: encrypt(ring.active.key, dataKey, wrapName(wallet, ring.active.kid)),
      ciphertext: encrypt(dataKey, privateKey, keyName(wallet)),
    };
  } finally {
    dataKey.fill(0);
  }
}

/** Opens the private key for the time of `use`, then overwrites it. */
export function withPrivateKey<T>(
  ring: KeyRing,
  wallet: WalletName,
  sealed: SealedWallet,
  use: (privateKey: Uint8Array) => T,
): T {
  const dataKey = unwrap(ring, wallet, sealed);
  let privateKey: Uint8Array | undefined;
  try {
    privateKey = decrypt(dataKey, sealed.ciphertext, keyName(wallet), "private key", wallet);
    return use(privateKey);
  } finally {
    dataKey.fill(0);
    privateKey?.fill(0);
  }
}

/** The same wallet under the active master key, and a new seal where one is given; the private key itself is not opened. */
export function rewrapWallet(
  ring: KeyRing,
  wallet: WalletName,
  sealed: SealedWallet,
  seal: Seal = wallet,
): SealedWallet {
  const dataKey = unwrap(ring, wallet, sealed);
  try {
    const { kid, key } = ring.active;
    return {
      kid,
      wrappedDataKey: encrypt(key, dataKey, wrapName({ ...wallet, ...seal }, kid)),
      ciphertext: sealed.ciphertext,
    };
  } finally {
    dataKey.fill(0);
  }
}

const unwrap = (ring: KeyRing, wallet: WalletName, sealed: SealedWallet): Uint8Array =>
  decrypt(
    ring.get(sealed.kid),
    sealed.wrappedDataKey,
    wrapName(wallet, sealed.kid),
    "data key",
    wallet,
  );

const keyName = ({ agentId, address }: WalletName): Buffer =>
  Buffer.from(`purser:wallet-key:v1|${agentId}|${address}`);
const wrapName = (wallet: WalletName, kid: string): Buffer =>
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
  );

/** nonce | tag | ciphertext */
function encrypt(key: Uint8Array, secret: Uint8Array, name: Buffer): Uint8Array {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(name);
  const body = Buffer.concat([cipher.update(secret), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), body]);
}

function decrypt(
  key: Uint8Array,
  box: Uint8Array,
  name: Buffer,
  what: string,
  { agentId }: WalletName,
): Uint8Array {
  try {
    if (box.length !== BOX_BYTES) throw new RangeError(`${box.length} bytes`);
    const nonce = box.subarray(0, NONCE_BYTES);
    const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(name);
    decipher.setAuthTag(box.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
    // The secret has the length of one block step: update gives all of it, final only the verdict.
    const secret = decipher.update(box.subarray(NONCE_BYTES + TAG_BYTES));
    try {
      decipher.final();
    } catch (error) {
      secret.fill(0);
      throw error;
    }
    return secret;
  } catch (error) {
    throw new NotSignedFor(
      `the ${what} of agent ${agentId} does not open: it was altered, moved from another row, sealed for other rules or another owner, or wrapped by another key`,
      { cause: error },
    );
  }
}

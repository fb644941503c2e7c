/** Wallet keys: sealed in their envelopes, opened for one signature. */
import { randomBytes, createCipheriv, createDecipheriv } from "node:crypto";
import type { Address, Hex } from "viem";
import type { NetworkFacts } from "../../core/networks.ts";
import type { Authorization, SettlementKey } from "../../core/authorization.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { MasterKey } from "../../core/master-keys.ts";

/** The curve: secp256k1, native where it can be. */
export interface Curve {
  /** Lower case. */
  addressOf(privateKey: Uint8Array): Address;
  isPrivateKey(bytes: Uint8Array): boolean;
  /** 65 bytes r, s (low), v (27 or 28). */
  sign(hash: Uint8Array, privateKey: Uint8Array): Hex;
}

export interface StoredWallet extends SealedWallet {
  address: Address;
}

export interface Deps {
  ring: KeyRing;
  curve: Curve;
  networks: readonly NetworkFacts[];
  /** Read anew for each signature: no key material stays in memory between two. */
  loadWallet(agentId: string): Promise<StoredWallet | undefined>;
}

/** Signs for agents' wallets. The token's domain is always from our own table. */
export class Custody {
  readonly #deps: Deps;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** A new random wallet for this agent, sealed for its row; the key itself is gone when this returns. */
  createWallet(agentId: string): { address: Address; sealed: SealedWallet } {
    const { ring, curve } = this.#deps;
    const privateKey = randomBytes(32);
    try {
      // One in 2^128 random numbers is no key; then there is no agent rather than a wrong one.
      if (!curve.isPrivateKey(privateKey)) throw new CustodyError("the random key is no key");
      const address = curve.addressOf(privateKey);
      return { address, sealed: sealWallet(ring, { agentId, address }, privateKey) };
    } finally {
      privateKey.fill(0);
    }
  }

  /** A transfer of our USDC from this agent's wallet. */
  async signAuthorization(agentId: string, authorization: Authorization): Promise<Hex> {
    const network = this.#networkOf(authorization);
    const wallet = await this.#load(agentId);
    if (authorization.from.toLowerCase() !== wallet.address)
      throw new CustodyError(`agent ${agentId} does not own the wallet ${authorization.from}`);
    assertWellFormed(authorization);
    const digest = schemeOf(authorization).transferDigest(network, authorization);
    return this.#sign(agentId, wallet, digest);
  }

  /** Makes an unused authorization of this wallet worthless. */
  async signCancel(agentId: string, key: Omit<SettlementKey, "from">): Promise<Hex> {
    const network = this.#networkOf(key);
    const wallet = await this.#load(agentId);
    const scheme = schemeOf({ ...key, from: wallet.address });
    return this.#sign(agentId, wallet, scheme.cancelDigest(network, wallet.address, key.nonce));
  }

  #sign(agentId: string, wallet: StoredWallet, hash: Uint8Array): Hex {
    const { ring, curve } = this.#deps;
    return withPrivateKey(ring, { agentId, address: wallet.address }, wallet, (privateKey) => {
      // The key that was opened must be this wallet's: the last check before money can move.
      if (curve.addressOf(privateKey) !== wallet.address)
        throw new CustodyError(`the key of agent ${agentId} belongs to another address`);
      return curve.sign(hash, privateKey);
    });
  }

  async #load(agentId: string): Promise<StoredWallet> {
    const wallet = await this.#deps.loadWallet(agentId);
    if (!wallet) throw new CustodyError(`agent ${agentId} has no wallet`);
    return wallet;
  }

  #networkOf({ chainId, asset }: { chainId: number; asset: Address }): NetworkFacts {
    const network = this.#deps.networks.find((candidate) => candidate.chainId === chainId);
    if (!network || network.usdc.address.toLowerCase() !== asset.toLowerCase())
      throw new CustodyError(`no signature for asset ${asset} on chain ${chainId}: not configured`);
    return network;
  }
}

const MAX_UINT256 = (1n << 256n) - 1n;

/** The digest is packed from these bytes as they are: a short address would be another address. */
function assertWellFormed({ from, to, nonce, ...numbers }: Authorization): void {
  const isAddress = (text: string) => /^0x[0-9a-fA-F]{40}$/.test(text);
  const isUint = (value: bigint) => value >= 0n && value <= MAX_UINT256;
  if (
    !isAddress(from) ||
    !isAddress(to) ||
    !/^0x[0-9a-fA-F]{64}$/.test(nonce) ||
    ![numbers.value, numbers.validAfter, numbers.validBefore].every(isUint)
  )
    throw new CustodyError("an authorization with a malformed field is not signed");
}

/**
 * Envelope encryption of wallet keys. Each wallet has a random data key of its own, which encrypts
 * the private key; a master key (`kid`) wraps the data key. Rotation re-wraps data keys only.
 * Both layers are AES-256-GCM bound to agent id and address, so nothing opens in another row.
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

/** Whose key it is: the additional data of both layers. The address is in lower case. */
interface WalletName {
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

/** The same wallet under the active master key; the private key itself is not opened. */
export function rewrapWallet(
  ring: KeyRing,
  wallet: WalletName,
  sealed: SealedWallet,
): SealedWallet {
  const dataKey = unwrap(ring, wallet, sealed);
  try {
    const { kid, key } = ring.active;
    return {
      kid,
      wrappedDataKey: encrypt(key, dataKey, wrapName(wallet, kid)),
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
const wrapName = ({ agentId, address }: WalletName, kid: string): Buffer =>
  Buffer.from(`purser:data-key:v1|${kid}|${agentId}|${address}`);

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
    throw new CustodyError(
      `the ${what} of agent ${agentId} does not open: it was altered, moved from another row, or wrapped by another key`,
      { cause: error },
    );
  }
}

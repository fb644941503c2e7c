/**
 * Envelope encryption of wallet keys. Each wallet has its own random data key, which encrypts the private key; a master
 * key (`kid`) wraps the data key, here or in a KMS. Rotation only re-wraps data keys. Both layers are bound to agent id
 * and address, so nothing can be decrypted in another row. The wrapping is also bound to its seal: the agent's owner,
 * what that owner signed, and which part of it is in force (docs/decisions/0020).
 */
import { createCipheriv, createDecipheriv, createHash, randomBytes } from "node:crypto";
import type { Hex } from "viem";
import type { MasterKey } from "../../core/master-keys.ts";
import { Kms, KmsAltered, type KmsContext } from "../../infra/kms.ts";

const ALGORITHM = "aes-256-gcm";
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
export const KEY_BYTES = 32;

/** A wallet that cannot be decrypted, or does not match its claims. Nothing is signed. */
export class CustodyError extends Error {
  override name = "CustodyError";
}

/** The stored rows do not match the owner's signature: this raises an alarm. */
export class NotSignedFor extends CustodyError {}

/** Format: nonce | tag | ciphertext */
export function encrypt(key: Uint8Array, secret: Uint8Array, name: Buffer): Uint8Array {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(name);
  const body = Buffer.concat([cipher.update(secret), cipher.final()]);
  return Buffer.concat([nonce, cipher.getAuthTag(), body]);
}

/** Throws if the box belongs to another key or name, or was altered. */
export function decrypt(key: Uint8Array, box: Uint8Array, name: Buffer): Uint8Array {
  if (box.length < NONCE_BYTES + TAG_BYTES) throw new RangeError(`${box.length} bytes`);
  const nonce = box.subarray(0, NONCE_BYTES);
  const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
  decipher.setAAD(name);
  decipher.setAuthTag(box.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
  // In counter mode, update returns the whole plaintext; final only checks the tag.
  const secret = decipher.update(box.subarray(NONCE_BYTES + TAG_BYTES));
  try {
    decipher.final();
  } catch (error) {
    secret.fill(0);
    throw error;
  }
  return secret;
}

/** What a wrapped key is bound to, by the kid that wraps it: it can be unwrapped only with the same name. */
export interface Bound {
  /** The subject, for people who read a KMS's log. */
  of: string;
  name(kid: string): Buffer;
}

interface Wrapped {
  kid: string;
  wrapped: Uint8Array;
}

interface KeyRingOptions {
  kms?: Kms;
  /** How long a data key that a KMS unwrapped is cached; 0: not at all. */
  cacheMs?: number;
}

/**
 * The size of a key wrapped here. Other sizes were altered, an error that is kept apart from other failures as in a
 * KMS.
 */
const WRAPPED_BYTES = 60;
const CACHED = 10_000;

export class KeyRing {
  readonly #keys: ReadonlyMap<string, MasterKey>;
  readonly #kms: Kms;
  readonly #opened: DataKeys;
  readonly active: MasterKey;

  constructor(keys: readonly MasterKey[], activeKid: string, options: KeyRingOptions = {}) {
    this.#keys = new Map(keys.map((key) => [key.kid, key]));
    this.#kms = options.kms ?? new Kms();
    this.#opened = new DataKeys(options.cacheMs ?? 0);
    const active = this.#keys.get(activeKid);
    if (!active) throw new CustodyError(`master key "${activeKid}" is not configured`);
    this.active = active;
  }

  get kids(): string[] {
    return [...this.#keys.keys()];
  }

  get(kid: string): MasterKey {
    const key = this.#keys.get(kid);
    if (!key)
      throw new CustodyError(`a wallet is wrapped by master key "${kid}", which is not configured`);
    return key;
  }

  /** Wraps under the active key. */
  async wrap(dataKey: Uint8Array, bound: Bound): Promise<Wrapped> {
    const { kid, key, kmsKeyId } = this.active;
    const wrapped =
      key === undefined
        ? await this.#kms.encrypt(kmsKeyId, dataKey, contextOf(bound, kid))
        : encrypt(key, dataKey, bound.name(kid));
    return { kid, wrapped };
  }

  /** The caller overwrites the key after use. */
  async unwrap({ kid, wrapped }: Wrapped, bound: Bound): Promise<Uint8Array> {
    const { key, kmsKeyId } = this.get(kid);
    try {
      if (key !== undefined) {
        if (wrapped.length !== WRAPPED_BYTES) throw new RangeError(`${wrapped.length} bytes`);
        return decrypt(key, wrapped, bound.name(kid));
      }
      const context = contextOf(bound, kid);
      const place = `${kid}|${context["purser:seal"]}|${digestOf(wrapped)}`;
      return await this.#opened.of(place, () => this.#kms.decrypt(kmsKeyId, wrapped, context));
    } catch (error) {
      if (key === undefined && !(error instanceof KmsAltered)) throw error;
      throw doesNotOpen("data key", bound.of, error);
    }
  }

  /**
   * Re-wraps under the active key, and for another name if one is given. From KMS to KMS the data key never leaves the
   * KMS.
   */
  async rewrap(from: Wrapped, bound: Bound, next: Bound = bound): Promise<Wrapped> {
    const old = this.get(from.kid);
    const { kid, kmsKeyId } = this.active;
    if (old.kmsKeyId !== undefined && kmsKeyId !== undefined) {
      try {
        const wrapped = await this.#kms.reEncrypt(
          from.wrapped,
          { keyId: old.kmsKeyId, context: contextOf(bound, old.kid) },
          { keyId: kmsKeyId, context: contextOf(next, kid) },
        );
        return { kid, wrapped };
      } catch (error) {
        throw error instanceof KmsAltered ? doesNotOpen("data key", bound.of, error) : error;
      }
    }
    const dataKey = await this.unwrap(from, bound);
    try {
      return await this.wrap(dataKey, next);
    } finally {
      dataKey.fill(0);
    }
  }

  /** Throws if the active key cannot be used now. */
  async check(): Promise<void> {
    if (this.active.kmsKeyId === undefined) return;
    const bound = { of: "check", name: (kid: string) => Buffer.from(`purser:check:v1|${kid}`) };
    const wrapped = await this.wrap(Buffer.alloc(1), bound);
    await this.#kms.decrypt(
      this.active.kmsKeyId,
      wrapped.wrapped,
      contextOf(bound, this.active.kid),
    );
  }

  close(): Promise<void> {
    this.#opened.clear();
    return this.#kms.close();
  }
}

const digestOf = (bytes: Uint8Array): string => createHash("sha256").update(bytes).digest("hex");

/** A KMS stores and logs the context in plain text, so the name is sent as a digest. */
const contextOf = (bound: Bound, kid: string): KmsContext => ({
  "purser:of": bound.of,
  "purser:seal": digestOf(bound.name(kid)),
});

const doesNotOpen = (what: string, of: string, cause: unknown): NotSignedFor =>
  new NotSignedFor(
    `the ${what} of agent ${of} does not open: it was altered, moved from another row, sealed for other rules or another owner, or wrapped by another key`,
    { cause },
  );

/**
 * A cache of data keys that a KMS has unwrapped. A payment of an agent is often followed by more, and each would cost a
 * call to the KMS. A changed seal has another cache key, so nothing that was narrowed stays usable. Keys are
 * overwritten when they expire.
 */
class DataKeys {
  readonly #keepMs: number;
  readonly #keys = new Map<string, { key: Promise<Uint8Array>; timer: NodeJS.Timeout }>();

  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  /** Returns a copy, which belongs to the caller. */
  async of(place: string, open: () => Promise<Uint8Array>): Promise<Uint8Array> {
    if (this.#keepMs === 0) return open();
    const known = this.#keys.get(place);
    if (known) return Uint8Array.from(await known.key);
    const key = open();
    const timer = setTimeout(() => this.#forget(place), this.#keepMs).unref();
    this.#keys.set(place, { key, timer });
    key.catch(() => this.#forget(place));
    const [oldest] = this.#keys.keys();
    if (this.#keys.size > CACHED && oldest !== undefined) this.#forget(oldest);
    return Uint8Array.from(await key);
  }

  #forget(place: string): void {
    const known = this.#keys.get(place);
    if (!known) return;
    this.#keys.delete(place);
    clearTimeout(known.timer);
    // Callers that wait for the key have copied it first: they called earlier.
    void known.key.then((key) => setImmediate(() => key.fill(0))).catch(() => undefined);
  }

  clear(): void {
    for (const place of this.#keys.keys()) this.#forget(place);
  }
}

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

/**
 * Wraps the data key of a wallet under the active master key of another deployment, for the same seal. Returns after the
 * key was opened there, and belongs to the wallet's address.
 */
export async function handOver(
  rings: { from: KeyRing; to: KeyRing },
  wallet: WalletName,
  sealed: SealedWallet,
  addressOf: (privateKey: Uint8Array) => string,
): Promise<SealedWallet> {
  const bound = boundTo(wallet);
  const dataKey = await rings.from.unwrap(wrappedOf(sealed), bound);
  const handed = { kid: "", wrappedDataKey: new Uint8Array(), ciphertext: sealed.ciphertext };
  try {
    const { kid, wrapped } = await rings.to.wrap(dataKey, bound);
    Object.assign(handed, { kid, wrappedDataKey: wrapped });
  } finally {
    dataKey.fill(0);
  }
  const address = await withPrivateKey(rings.to, wallet, handed, addressOf);
  if (address.toLowerCase() !== wallet.address)
    throw new NotSignedFor(`the key of agent ${wallet.agentId} is not the key of its wallet`);
  return handed;
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

import { randomBytes } from "node:crypto";
import type { Address, Hex } from "viem";
import type { NetworkFacts } from "../../core/networks.ts";
import {
  CustodyError,
  sealWallet,
  withPrivateKey,
  type KeyRing,
  type SealedWallet,
} from "./envelope.ts";
import type { Authorization, SettlementKey } from "../../core/authorization.ts";
import { schemeOf } from "../../schemes/index.ts";

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

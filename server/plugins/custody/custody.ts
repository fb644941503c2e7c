/** Wallet keys: opened for one signature, after the owner's own signature was seen to cover it. */
import { randomBytes } from "node:crypto";
import type { Address, Hex } from "viem";
import type { NetworkFacts } from "../../core/networks.ts";
import type {
  Authorization,
  SettlementKey,
  SignedAuthorization,
} from "../../core/authorization.ts";
import { loosens, rulesDigest, type Rules, type RulesInForce } from "../../core/rules.ts";
import { ApiError } from "../../errors.ts";
import type { Db } from "../../infra/db/prisma.ts";
import {
  allowanceOf,
  paymentSchemeOf,
  permitDigest,
  SPENDERS,
  type AllowanceWanted,
} from "../../schemes/index.ts";
import {
  CustodyError,
  NotSignedFor,
  rewrapWallet,
  sealWallet,
  unsigned,
  withPrivateKey,
  type KeyRing,
  type Seal,
  type SealedWallet,
  type WalletName,
} from "./envelope.ts";
import type { SIWxPayload } from "@x402/extensions/sign-in-with-x";
import type { Cover, Covers, PaidAt, Sealed } from "./covers.ts";
import { readChallenge, signInOf, type SignInAsked } from "./sign-in.ts";
import { lockWallet, updateSeal } from "./store.ts";

/** The curve: secp256k1, native where it can be. */
export interface Curve {
  /** Lower case. */
  addressOf(privateKey: Uint8Array): Address;
  isPrivateKey(bytes: Uint8Array): boolean;
  /** 65 bytes r, s (low), v (27 or 28). */
  sign(hash: Uint8Array, privateKey: Uint8Array): Hex;
}

export interface Deps {
  ring: KeyRing;
  curve: Curve;
  networks: readonly NetworkFacts[];
  covers: Covers;
  /** Has this payee collected a payment of this agent at this site? */
  hasPaid(paidAt: PaidAt): Promise<boolean>;
  /** Our books and the owner's signatures do not agree: rings, and tells the owner. Never fails. */
  alarm(about: { agentId: string; error: Error }): void;
}

interface Owner {
  address: string;
  chainId: number;
}

/** Signs for agents' wallets. The token's domain is always from our own table. */
export class Custody {
  readonly #deps: Deps;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** A new random wallet for this agent, sealed for its owner alone; the key itself is gone when this returns. */
  createWallet(agentId: string, owner: Owner): { address: Address; sealed: SealedWallet } {
    const { ring, curve } = this.#deps;
    const privateKey = randomBytes(32);
    try {
      // One in 2^128 random numbers is no key; then there is no agent rather than a wrong one.
      if (!curve.isPrivateKey(privateKey)) throw new CustodyError("the random key is no key");
      const address = curve.addressOf(privateKey);
      return {
        address,
        sealed: sealWallet(ring, { agentId, address, ...unsigned(owner) }, privateKey),
      };
    } finally {
      privateKey.fill(0);
    }
  }

  /** A wallet that was made for an order, sealed for it now that it is signed. */
  adopt(
    wallet: { agentId: string; address: Address; sealed: SealedWallet; owner: Owner },
    first: { digest: Hex; rules: RulesInForce },
  ): { seal: Seal; sealed: SealedWallet } {
    const { agentId, address, sealed, owner } = wallet;
    const name = { agentId, address, ...unsigned(owner) };
    const seal = {
      ...unsigned(owner),
      policyDigest: first.digest,
      rulesDigest: rulesDigest(first.rules),
      revision: 1,
    };
    return { seal, sealed: rewrapWallet(this.#deps.ring, name, sealed, seal) };
  }

  /**
   * Seals the wallet for other rules, in the transaction that writes them and holds the agent's row. Narrower ones need
   * nothing but that; others need the policy the owner just signed. Where the books were tampered with, a narrowing only
   * leaves the wallet as it is: it opens for nothing then, until the owner signs again.
   */
  async reseal(
    tx: Db,
    agent: { agentId: string; owner: Owner },
    rules: {
      current: RulesInForce;
      wanted: RulesInForce;
      signed: { digest: Hex; rules: Rules } | undefined;
    },
  ): Promise<void> {
    const { agentId, owner } = agent;
    const { current, wanted, signed } = rules;
    const wallet = await lockWallet(tx, agentId);
    if (!wallet) throw new CustodyError(`agent ${agentId} has no wallet`);
    const next = rulesDigest(wanted);
    if (!signed && next === wallet.rulesDigest) return;
    const name: WalletName = {
      ...wallet,
      agentId,
      ownerAddress: owner.address,
      ownerChainId: owner.chainId,
    };
    const seal: Seal = {
      ownerAddress: owner.address,
      ownerChainId: owner.chainId,
      policyDigest: signed?.digest ?? wallet.policyDigest,
      rulesDigest: next,
      revision: wallet.revision + 1,
    };
    try {
      const before: RulesInForce = signed ? { ...signed.rules, status: "active" } : current;
      if (!signed && rulesDigest(current) !== wallet.rulesDigest)
        throw new NotSignedFor(`the rules of agent ${agentId} are not those that were sealed`);
      if (loosens(before, wanted))
        throw new NotSignedFor(`the rules of agent ${agentId} would be wider than what was signed`);
      await updateSeal(tx, agentId, seal, rewrapWallet(this.#deps.ring, name, wallet, seal));
    } catch (error) {
      if (!(error instanceof NotSignedFor)) throw error;
      this.#deps.alarm({ agentId, error });
      if (signed) throw notSigned(error);
    }
  }

  /**
   * Seals the wallet for another owner, who has signed nothing yet: for the same rules or narrower ones, and for no
   * payment before that owner's first policy. In the transaction that moves the agent, and holds its row.
   */
  async reown(
    tx: Db,
    agent: { agentId: string; from: Owner; to: Owner },
    rules: { current: RulesInForce; wanted: RulesInForce },
  ): Promise<void> {
    const { agentId, from, to } = agent;
    const wallet = await lockWallet(tx, agentId);
    if (!wallet) throw new CustodyError(`agent ${agentId} has no wallet`);
    const name = { ...wallet, agentId, ownerAddress: from.address, ownerChainId: from.chainId };
    const seal = {
      ...unsigned(to),
      rulesDigest: rulesDigest(rules.wanted),
      revision: wallet.revision + 1,
    };
    try {
      if (rulesDigest(rules.current) !== wallet.rulesDigest || loosens(rules.current, rules.wanted))
        throw new NotSignedFor(`the rules of agent ${agentId} are not those that were sealed`);
      await updateSeal(tx, agentId, seal, rewrapWallet(this.#deps.ring, name, wallet, seal));
    } catch (error) {
      if (!(error instanceof NotSignedFor)) throw error;
      this.#deps.alarm({ agentId, error });
      throw notSigned(error);
    }
  }

  /** A transfer of our USDC from this agent's wallet, if the owner's signature covers it. */
  async signAuthorization(
    agentId: string,
    authorization: Authorization,
    cover: Cover,
  ): Promise<Hex> {
    const network = this.#networkOf(authorization);
    assertWellFormed(authorization);
    return this.#ringing(agentId, async () => {
      const wallet = await this.#deps.covers.check({
        agentId,
        authorization: atItsMost(authorization),
        cover,
      });
      assertOwn(wallet, authorization);
      const scheme = paymentSchemeOf(authorization);
      return this.#sign(wallet, scheme.transferDigest(network, authorization));
    });
  }

  /**
   * Lets the contract that a payment goes through take money of this wallet: only together with such a payment, which is
   * checked as for its own signature, and for no more than the limits the owner signed, whatever was asked for.
   */
  async signAllowance(
    agentId: string,
    payment: { authorization: Authorization; cover: Cover },
    wanted: Pick<AllowanceWanted, "value" | "count" | "deadline">,
  ): Promise<SignedAuthorization> {
    const { authorization, cover } = payment;
    const network = this.#networkOf(authorization);
    assertWellFormed(authorization);
    const { spender } = paymentSchemeOf(authorization);
    if (spender === undefined) throw new CustodyError("this payment needs no allowance");
    return this.#ringing(agentId, async () => {
      const { wallet, value } = await this.#deps.covers.checkAllowance(
        { agentId, authorization: atItsMost(authorization), cover },
        wanted,
      );
      assertOwn(wallet, authorization);
      const { address: owner } = wallet;
      return this.#signPermit(wallet, { ...wanted, value, network, owner, spender });
    });
  }

  /** Takes such an allowance back: that needs nobody's word. */
  async signRevocation(
    agentId: string,
    key: Pick<SettlementKey, "chainId" | "asset">,
    wanted: Pick<AllowanceWanted, "spender" | "count" | "deadline">,
  ): Promise<SignedAuthorization> {
    const network = this.#networkOf(key);
    if (!SPENDERS.some((one) => one.toLowerCase() === wanted.spender.toLowerCase()))
      throw new CustodyError(`${wanted.spender} never had an allowance`);
    const wallet = await this.#deps.covers.load({ agentId, payee: "", site: "" });
    return this.#signPermit(wallet, { ...wanted, network, owner: wallet.address, value: 0n });
  }

  #signPermit(wallet: Sealed, wanted: AllowanceWanted): SignedAuthorization {
    return { ...allowanceOf(wanted), signature: this.#sign(wallet, permitDigest(wanted)) };
  }

  /** Makes an unused authorization of this wallet worthless: that needs nobody's word. */
  async signCancel(
    agentId: string,
    key: Omit<SettlementKey, "from"> & Pick<Authorization, "terms">,
  ): Promise<Hex> {
    const network = this.#networkOf(key);
    const scheme = paymentSchemeOf(key);
    if (!scheme.cancelDigest) throw new CustodyError("nobody can cancel this for its payer");
    const wallet = await this.#deps.covers.load({ agentId, payee: "", site: "" });
    return this.#sign(wallet, scheme.cancelDigest(network, wallet.address, key.nonce));
  }

  /**
   * Tells a site which wallet is asking, and nothing else: only where this wallet has paid, and may pay still by the
   * owner's policy. Undefined where the site's challenge is not one that is answered.
   */
  async signIn(asked: SignInAsked): Promise<SIWxPayload | undefined> {
    const facts = readChallenge(asked, new Date());
    const { agentId, url, payee } = asked;
    const paidAt = { agentId, payee: payee.toLowerCase(), site: url.origin };
    if (!facts || !(await this.#deps.hasPaid(paidAt))) return undefined;
    return this.#ringing(agentId, async () => {
      const wallet = await this.#deps.covers.checkSite(paidAt);
      const { hash, withSignature } = signInOf(facts, wallet.address);
      return withSignature(this.#sign(wallet, Buffer.from(hash.slice(2), "hex")));
    });
  }

  /** What the owner's signature does not cover is not signed, and is an alarm. */
  async #ringing<T>(agentId: string, sign: () => Promise<T>): Promise<T> {
    try {
      return await sign();
    } catch (error) {
      if (!(error instanceof NotSignedFor)) throw error;
      this.#deps.alarm({ agentId, error });
      throw notSigned(error);
    }
  }

  #sign(wallet: Sealed, hash: Uint8Array): Hex {
    const { ring, curve } = this.#deps;
    return withPrivateKey(ring, wallet, wallet, (privateKey) => {
      // The key that was opened must be this wallet's: the last check before money can move.
      if (curve.addressOf(privateKey) !== wallet.address)
        throw new CustodyError(`the key of agent ${wallet.agentId} belongs to another address`);
      return curve.sign(hash, privateKey);
    });
  }

  #networkOf({ chainId, asset }: { chainId: number; asset: Address }): NetworkFacts {
    const network = this.#deps.networks.find((candidate) => candidate.chainId === chainId);
    if (!network || network.usdc.address.toLowerCase() !== asset.toLowerCase())
      throw new CustodyError(`no signature for asset ${asset} on chain ${chainId}: not configured`);
    return network;
  }
}

/** Says nothing of what was found: that is for the operator's log and the owner. */
const notSigned = (cause: Error): ApiError => new ApiError("policy_not_signed", { cause });

/** What may be charged of a maximum is covered as the maximum. */
const atItsMost = (authorization: Authorization): Authorization => ({
  ...authorization,
  value: paymentSchemeOf(authorization).mostOf?.(authorization) ?? authorization.value,
});

function assertOwn({ agentId, address }: Sealed, { from }: Authorization): void {
  if (from.toLowerCase() !== address)
    throw new CustodyError(`agent ${agentId} does not own the wallet ${from}`);
}

const MAX_UINT256 = (1n << 256n) - 1n;

/** The digest is packed from these bytes as they are: a short address would be another address. */
function assertWellFormed({ from, to, nonce, ...numbers }: Authorization): void {
  const isAddress = (text: string) => /^0x[0-9a-fA-F]{40}$/.test(text);
  const isUint = (value: bigint) => value >= 0n && value <= MAX_UINT256;
  if (
    !isAddress(from) ||
    !isAddress(to) ||
    !/^(permit2:)?0x[0-9a-fA-F]{64}$/.test(nonce) ||
    ![numbers.value, numbers.validAfter, numbers.validBefore].every(isUint)
  )
    throw new CustodyError("an authorization with a malformed field is not signed");
}

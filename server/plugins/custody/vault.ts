/** Decrypts wallet keys: for one signature each, after checking that the owner's own signature covers it. */
import { randomFillSync } from "node:crypto";
import type { Address, Hex } from "viem";
import { isPayerOf, type Cell } from "../../core/cells.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type {
  Authorization,
  SettlementKey,
  SignedAuthorization,
} from "../../core/authorization.ts";
import { loosens, rulesDigest, type Rules, type RulesInForce } from "../../core/rules.ts";
import { rulesOfPolicy } from "../../core/orders.ts";
import {
  depositDigestOf,
  depositOf,
  isWithdrawCall,
  ownVoucher,
  voucherDigestOf,
  type ChannelOrder,
  type ChannelSignatures,
} from "../../schemes/batch-settlement/paying.ts";
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
import { createSecretBox, type SecretBox } from "./secret-box.ts";
import { keccakOfHex } from "../../core/keccak.ts";
import { type PlainTransaction, serialize } from "../../infra/relayer-signer.ts";
import type {
  HeldWallet,
  KeyNames,
  KeyVault,
  NewRules,
  Resealed,
  SiteSignInRequest,
} from "./key-vault.ts";
import { readChallenge, signInOf } from "./sign-in.ts";
import type { SignedMove, Owner, SignedOrderDocument, SealChanges } from "./seal-changes.ts";

/** secp256k1, native if available. */
interface Curve {
  /** Lower case. */
  addressOf(privateKey: Uint8Array): Address;
  isPrivateKey(bytes: Uint8Array): boolean;
  /** 65 bytes: r, s (low), v (27 or 28). */
  sign(hash: Uint8Array, privateKey: Uint8Array): Hex;
}

interface VaultDeps {
  ring: KeyRing;
  curve: Curve;
  /** Where there are several cells: which of them an address names (core/cells.ts). */
  cells?: { self: string; cells: readonly Cell[] } | undefined;
  networks: readonly NetworkFacts[];
  covers: Covers;
  /** They sign the vouchers of channels, and withdraw what is left in them. The first is used for new channels. */
  channelKeys: readonly Uint8Array[];
  /** Whether this payee has collected a payment of this agent at this site. */
  hasPaid(paidAt: PaidAt): Promise<boolean>;
  /** Undefined if the caller is in this process, which has verified the change of a seal. */
  sealChanges?: SealChanges | undefined;
}

/** One in a million wallets names another cell, however many there are. */
const DRAWS_PER_CELL = 14;

/** Signs for agents' wallets. The token's domain is always from our own table. */
export class Vault implements KeyVault {
  readonly #deps: VaultDeps;
  readonly #box: SecretBox;

  constructor(deps: VaultDeps) {
    this.#deps = deps;
    this.#box = createSecretBox(deps.ring);
  }

  seal(purpose: string, plain: Uint8Array): Promise<Uint8Array> {
    return this.#box.seal(purpose, plain);
  }

  open(purpose: string, sealed: Uint8Array): Promise<Uint8Array> {
    return this.#box.open(purpose, sealed);
  }

  async keyNames(): Promise<KeyNames> {
    const { ring } = this.#deps;
    await ring.check();
    return { active: ring.active.kid, kids: ring.kids };
  }

  async createWallet(
    agentId: string,
    owner: Owner,
  ): Promise<{ address: Address; sealed: SealedWallet }> {
    const { ring } = this.#deps;
    const privateKey = Buffer.alloc(32);
    try {
      const address = this.#drawAddress(privateKey);
      const sealed = await sealWallet(ring, { agentId, address, ...unsigned(owner) }, privateKey);
      return { address, sealed };
    } finally {
      privateKey.fill(0);
    }
  }

  /**
   * Fills in a random key. With several cells it is drawn until its address names this one, so that stock sellers settle
   * the agent's payments in its owner's cell. An address that names another cell works too.
   */
  #drawAddress(privateKey: Buffer): Address {
    const { curve, cells } = this.#deps;
    const fromSeconds = BigInt(Math.floor(Date.now() / 1000));
    for (let left = cells ? cells.cells.length * DRAWS_PER_CELL : 1; ; left -= 1) {
      randomFillSync(privateKey);
      // One in 2^128 random numbers is not a valid key; then no agent is created.
      if (!curve.isPrivateKey(privateKey))
        throw new CustodyError("the random bytes are not a valid private key");
      const payer = curve.addressOf(privateKey);
      if (!cells || left <= 1 || isPayerOf(cells.cells, cells.self, { payer, fromSeconds }))
        return payer;
    }
  }

  async adopt(
    wallet: { agentId: string; address: Address; sealed: SealedWallet; owner: Owner },
    { signed, rules }: { signed: SignedOrderDocument<"AgentPolicy">; rules: RulesInForce },
  ): Promise<Resealed> {
    const { agentId, address, sealed, owner } = wallet;
    const name = { agentId, address, ...unsigned(owner) };
    await this.#assertWithin(name, signed, rules);
    const seal = {
      ...unsigned(owner),
      policyDigest: signed.digest,
      rulesDigest: rulesDigest(rules),
      revision: 1,
    };
    return { seal, sealed: await rewrapWallet(this.#deps.ring, name, sealed, seal) };
  }

  async reseal(wallet: HeldWallet, { current, wanted, signed }: NewRules): Promise<Resealed> {
    const { agentId } = wallet;
    if (signed) await this.#assertWithin(wallet, signed, wanted);
    else {
      if (rulesDigest(current) !== wallet.rulesDigest)
        throw new NotSignedFor(`the rules of agent ${agentId} differ from the sealed rules`);
      // A caller that may lie about the row must not replace a newer seal by narrowing an older one.
      if (this.#deps.sealChanges) this.#deps.covers.assertNewest(wallet);
      if (loosens(current, wanted))
        throw new NotSignedFor(
          `the rules of agent ${agentId} would allow more than the owner signed`,
        );
    }
    return this.#reseal(wallet, {
      ownerAddress: wallet.ownerAddress,
      ownerChainId: wallet.ownerChainId,
      policyDigest: signed?.digest ?? wallet.policyDigest,
      rulesDigest: rulesDigest(wanted),
      revision: wallet.revision + 1,
    });
  }

  async reown(
    wallet: HeldWallet,
    to: Owner,
    rules: { current: RulesInForce; wanted: RulesInForce; signed: SignedMove },
  ): Promise<Resealed> {
    const { current, wanted, signed } = rules;
    if (rulesDigest(current) !== wallet.rulesDigest || loosens(current, wanted))
      throw new NotSignedFor(`the rules of agent ${wallet.agentId} differ from the sealed rules`);
    await this.#deps.sealChanges?.move(wallet, to, signed);
    return this.#reseal(wallet, {
      ...unsigned(to),
      rulesDigest: rulesDigest(wanted),
      revision: wallet.revision + 1,
    });
  }

  async #reseal(wallet: HeldWallet, seal: Seal): Promise<Resealed> {
    return { seal, sealed: await rewrapWallet(this.#deps.ring, wallet, wallet, seal) };
  }

  /** Throws unless the rules are the policy that was just signed, or narrower. */
  async #assertWithin(
    wallet: WalletName,
    signed: SignedOrderDocument<"AgentPolicy">,
    wanted: RulesInForce,
  ): Promise<void> {
    const { sealChanges } = this.#deps;
    const rules: Rules = sealChanges
      ? await sealChanges.policy(wallet, signed)
      : rulesOfPolicy(signed.order);
    if (loosens({ ...rules, status: "active" }, wanted))
      throw new NotSignedFor(
        `the rules of agent ${wallet.agentId} would be wider than what was signed`,
      );
  }

  /** A USDC transfer from this agent's wallet, if the owner's signature covers it. */
  async signAuthorization(
    agentId: string,
    authorization: Authorization,
    cover: Cover,
  ): Promise<Hex> {
    const network = this.#networkOf(authorization);
    assertWellFormed(authorization);
    const wallet = await this.#deps.covers.check({
      agentId,
      authorization: atItsMost(authorization),
      cover,
    });
    assertOwn(wallet, authorization);
    const scheme = paymentSchemeOf(authorization);
    return this.#sign(wallet, scheme.transferDigest(network, authorization));
  }

  /**
   * An allowance for the contract through which a payment is made: only together with such a payment, which is checked
   * as for its own signature, and never above the limits that the owner signed, whatever was requested.
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
    const { wallet, value } = await this.#deps.covers.checkAllowance(
      { agentId, authorization: atItsMost(authorization), cover },
      wanted,
    );
    assertOwn(wallet, authorization);
    const { address: owner } = wallet;
    return this.#signPermit(wallet, { ...wanted, value, network, owner, spender });
  }

  /** Revokes such an allowance, which needs no signature of the owner. */
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

  async #signPermit(wallet: Sealed, wanted: AllowanceWanted): Promise<SignedAuthorization> {
    return { ...allowanceOf(wanted), signature: await this.#sign(wallet, permitDigest(wanted)) };
  }

  async channelSigners(): Promise<Address[]> {
    return this.#deps.channelKeys.map((key) => this.#deps.curve.addressOf(key));
  }

  /**
   * Such a transaction returns money to the wallet that a channel is of, so it needs no signature of an owner. The account
   * signs no other, except one that uses up a nonce.
   */
  async signWithdrawal(signer: Address, transaction: PlainTransaction): Promise<Hex> {
    const { to, value, data } = transaction;
    const isOwnNonce = to.toLowerCase() === signer && data === "0x";
    if (value !== 0n || !(isOwnNonce || isWithdrawCall({ to, data })))
      throw new CustodyError("an account of channels signs only withdrawals from channels");
    const hash = keccakOfHex(serialize({ ...transaction, type: "eip1559" }));
    return this.#deps.curve.sign(Buffer.from(hash.slice(2), "hex"), this.#channelKey(signer));
  }

  /**
   * The voucher of a request that is paid through a channel, and the deposit that it needs, if the owner's signature covers
   * both. How far the ceiling grows is shown by the voucher before it, which only the channel's key can have signed.
   * Vouchers have a key of their own, which also withdraws what is left: the wallet then needs no coins for gas.
   */
  async signVoucher(
    agentId: string,
    order: ChannelOrder,
    site: string,
  ): Promise<ChannelSignatures> {
    const { config, before } = order;
    const network = this.#networkOf({ chainId: order.chainId, asset: config.token });
    // A voucher for no more than the one before lets the seller claim nothing new: a refund needs one.
    const isNoMore = before && order.ceiling <= before.ceiling && !order.deposit;
    const wallet = isNoMore
      ? await this.#deps.covers.load({ agentId, payee: "", site: "" })
      : await this.#deps.covers.checkChannel(agentId, order, site);
    if (config.payer !== wallet.address)
      throw new CustodyError(`the channel is not of the wallet of agent ${agentId}`);
    if (before && !ownVoucher(order, before))
      throw new NotSignedFor(
        `agent ${agentId}: the voucher before this one is not of this channel`,
      );
    const key = this.#channelKey(config.payerAuthorizer);
    const voucher = this.#deps.curve.sign(voucherDigestOf(order), key);
    const deposit = depositOf(order);
    if (!deposit) return { voucher, deposit: null };
    return { voucher, deposit: await this.#sign(wallet, depositDigestOf(network, deposit)) };
  }

  /** Cancels an unused authorization of this wallet, which needs no signature of the owner. */
  async signCancel(
    agentId: string,
    key: Omit<SettlementKey, "from"> & Pick<Authorization, "terms">,
  ): Promise<Hex> {
    const network = this.#networkOf(key);
    const scheme = paymentSchemeOf(key);
    if (!scheme.cancelDigest)
      throw new CustodyError("this scheme has no cancellation by a third party");
    const wallet = await this.#deps.covers.load({ agentId, payee: "", site: "" });
    return this.#sign(wallet, scheme.cancelDigest(network, wallet.address, key.nonce));
  }

  /**
   * Proves to a site which wallet sends the request, and nothing else: only if this wallet has paid there, and may
   * still pay by the owner's policy. Undefined if the site's challenge is not acceptable.
   */
  async signIn(request: SiteSignInRequest): Promise<SIWxPayload | undefined> {
    const { agentId, payee, challenge } = request;
    const url = new URL(request.url);
    const { networks } = this.#deps;
    const facts = readChallenge({ url, challenge, networks }, new Date());
    const paidAt = { agentId, payee: payee.toLowerCase(), site: url.origin };
    if (!facts || !(await this.#deps.hasPaid(paidAt))) return undefined;
    const wallet = await this.#deps.covers.checkSite(paidAt);
    const { hash, withSignature } = signInOf(facts, wallet.address);
    return withSignature(await this.#sign(wallet, Buffer.from(hash.slice(2), "hex")));
  }

  #channelKey(signer: Address): Uint8Array {
    const { channelKeys, curve } = this.#deps;
    const key = channelKeys.find((one) => curve.addressOf(one) === signer);
    if (!key) throw new CustodyError(`CHANNEL_KEYS has no key of ${signer}`);
    return key;
  }

  #sign(wallet: Sealed, hash: Uint8Array): Promise<Hex> {
    const { ring, curve } = this.#deps;
    return withPrivateKey(ring, wallet, wallet, (privateKey) => {
      // The decrypted key must belong to this wallet's address: the last check before money can move.
      if (curve.addressOf(privateKey) !== wallet.address)
        throw new CustodyError(`the key of agent ${wallet.agentId} belongs to another address`);
      return curve.sign(hash, privateKey);
    });
  }

  #networkOf({ chainId, asset }: { chainId: number; asset: Address }): NetworkFacts {
    const network = this.#deps.networks.find((candidate) => candidate.chainId === chainId);
    if (!network || network.usdc.address.toLowerCase() !== asset.toLowerCase())
      throw new CustodyError(
        `asset ${asset} on chain ${chainId} is not configured, so nothing is signed for it`,
      );
    return network;
  }
}

/** An authorization with a maximum (upto) is checked with its maximum. */
const atItsMost = (authorization: Authorization): Authorization => ({
  ...authorization,
  value: paymentSchemeOf(authorization).mostOf?.(authorization) ?? authorization.value,
});

function assertOwn({ agentId, address }: Sealed, { from }: Authorization): void {
  if (from.toLowerCase() !== address)
    throw new CustodyError(`agent ${agentId} does not own the wallet ${from}`);
}

const MAX_UINT256 = (1n << 256n) - 1n;

/** The digest is built from these bytes without further checks: a short address would become a different address. */
function assertWellFormed({ from, to, nonce, ...numbers }: Authorization): void {
  const isAddress = (text: string) => /^0x[0-9a-fA-F]{40}$/.test(text);
  const isUint = (value: bigint) => value >= 0n && value <= MAX_UINT256;
  if (
    !isAddress(from) ||
    !isAddress(to) ||
    !/^(permit2:)?0x[0-9a-fA-F]{64}$/.test(nonce) ||
    ![numbers.value, numbers.validAfter, numbers.validBefore].every(isUint)
  )
    throw new CustodyError("the authorization has a malformed field, so it is not signed");
}

/**
 * Verifies changes of a seal if custody does not trust the caller (in the custody process): they need the owner's
 * signature of the new policy, or of the move to the recovery wallet. Narrowing needs neither.
 */
import type { Address, Hex } from "viem";
import {
  formOf,
  readOrder,
  rulesOfPolicy,
  type OrderKind,
  type Orders,
} from "../../core/orders.ts";
import { refusingUnknownVersion } from "../../core/policy-version.ts";
import { TEAMS_CHAIN } from "../../core/teams.ts";
import type { Rules } from "../../core/rules.ts";
import { ApiError } from "../../errors.ts";
import type { Identity, Time, Verdict } from "../orders/signatures.ts";
import { chainUnavailable, type SignedDocument } from "./covers.ts";
import { NotSignedFor, NOTHING, type WalletName } from "./envelope.ts";

export interface Owner {
  address: string;
  chainId: number;
}

/** An order with its signature, as verified by the orders module. */
export interface SignedOrderDocument<K extends OrderKind> {
  chainId: number;
  order: Orders[K];
  digest: Hex;
  signature: Hex;
}

/** A move is signed by both wallets. */
export interface SignedMove extends SignedOrderDocument<"MoveOwner"> {
  secondSignature: Hex;
}

interface SealChangesDeps {
  isSigned(owner: Identity, signed: { hash: Hex; signature: Hex }, time: Time): Promise<Verdict>;
  findPolicy(agentId: string, digest: Hex): Promise<SignedDocument | undefined>;
  findSecond(agentId: string): Promise<SignedDocument | undefined>;
  nowSeconds(): bigint;
}

/** Tolerance between the database's clock, by which an order was in time, and ours. */
const CLOCKS_SECONDS = 60n;
const REMEMBERED = 1_000;

export class SealChanges {
  readonly #deps: SealChangesDeps;
  /**
   * A cache: a move verifies the same signatures for each agent, and a contract's signature takes a call to its chain.
   */
  readonly #valid = new Set<string>();

  constructor(deps: SealChangesDeps) {
    this.#deps = deps;
  }

  /** The rules that its owner signed for this wallet, if they are newer than the sealed ones. */
  async policy(wallet: WalletName, signed: SignedOrderDocument<"AgentPolicy">): Promise<Rules> {
    const { agentId } = wallet;
    const fail = (what: string) => new NotSignedFor(`agent ${agentId}: ${what}`);
    const order = this.#read("AgentPolicy", signed, agentId);
    if (order.agent !== agentId || order.wallet.toLowerCase() !== wallet.address)
      throw fail("the new policy is another agent's");
    if (BigInt(order.version) <= (await this.#versionOf(wallet)))
      throw fail("the new policy is not newer than the one in force");
    const owner = { address: wallet.ownerAddress as Address, chainId: wallet.ownerChainId };
    await this.#assertSigned(agentId, owner, signed.digest, signed.signature);
    return rulesOfPolicy(order);
  }

  /** Throws unless the owner of this wallet and the recovery wallet that it named both signed the move. */
  async move(wallet: WalletName, to: Owner, signed: SignedMove): Promise<void> {
    const { agentId, ownerAddress, ownerChainId } = wallet;
    const fail = (what: string) => new NotSignedFor(`agent ${agentId}: ${what}`);
    const order = this.#read("MoveOwner", signed, agentId);
    if (order.from.toLowerCase() !== ownerAddress || order.to.toLowerCase() !== to.address)
      throw fail("the move is between other wallets");
    const owner = { address: ownerAddress as Address, chainId: ownerChainId };
    const second = { address: to.address as Address, chainId: to.chainId };
    const named = await this.#deps.findSecond(agentId);
    const naming = named && readOrder("SecondWallet", named.document as Orders["SecondWallet"]);
    if (
      !named ||
      !naming ||
      formOf("SecondWallet", naming, named.chainId, named.digest) === undefined ||
      naming.owner.toLowerCase() !== ownerAddress ||
      naming.second.toLowerCase() !== second.address ||
      Number(naming.secondChain) !== second.chainId
    )
      throw fail("its owner named another second wallet");
    // Named some time ago.
    await this.#assertSigned(agentId, owner, named.digest, named.signature, "ever");
    await this.#assertSigned(agentId, owner, signed.digest, signed.signature);
    await this.#assertSigned(agentId, second, signed.digest, signed.secondSignature);
  }

  /** The order, if it matches its digest and is in time. */
  #read<K extends OrderKind>(kind: K, signed: SignedOrderDocument<K>, agentId: string): Orders[K] {
    const order = refusingUnknownVersion(() => readOrder(kind, signed.order));
    if (!order || formOf(kind, order, signed.chainId, signed.digest) === undefined)
      throw new NotSignedFor(`agent ${agentId}: the order does not have its digest`);
    if (BigInt(order.deadline) + CLOCKS_SECONDS < this.#deps.nowSeconds())
      throw new ApiError("signature_expired");
    return order;
  }

  /** The version of the sealed policy: its digest is in the seal, so the document cannot have been replaced. */
  async #versionOf({ agentId, policyDigest }: WalletName): Promise<bigint> {
    if (policyDigest === NOTHING) return 0n;
    const found = await this.#deps.findPolicy(agentId, policyDigest);
    const order =
      found &&
      refusingUnknownVersion(() =>
        readOrder("AgentPolicy", found.document as Orders["AgentPolicy"]),
      );
    if (!found || !order || formOf("AgentPolicy", order, found.chainId, policyDigest) === undefined)
      throw new NotSignedFor(`agent ${agentId}: the sealed policy is missing`);
    return BigInt(order.version);
  }

  async #assertSigned(
    agentId: string,
    owner: { address: Address; chainId: number },
    hash: Hex,
    signature: Hex,
    time: Time = "now",
  ): Promise<void> {
    const known = `${owner.address}|${owner.chainId}|${hash}|${signature}|${time}`;
    // A team's members may have changed since.
    const isCached = owner.chainId !== TEAMS_CHAIN;
    if (isCached && this.#valid.has(known)) return;
    const verdict = await this.#deps.isSigned(owner, { hash, signature }, time);
    if (verdict === "unavailable") throw chainUnavailable();
    if (verdict === "invalid")
      throw new NotSignedFor(`agent ${agentId}: its owner did not sign this order`);
    if (!isCached) return;
    this.#valid.add(known);
    const [oldest] = this.#valid;
    if (this.#valid.size > REMEMBERED && oldest !== undefined) this.#valid.delete(oldest);
  }
}

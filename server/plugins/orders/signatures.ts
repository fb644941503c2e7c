/**
 * Whether an owner signed: with its wallet (a key, or a contract on its chain), or with one of its passkeys. Which passkeys those
 * are follows from orders that the owner signed, one after the other, and from nothing else in the database.
 */
import type { Address, Hex } from "viem";
import { formOf, readOrder, type Orders } from "../../core/orders.ts";
import {
  addressOfPasskey,
  isPasskeySignature,
  PASSKEYS_CHAIN,
  passkeyThatSigned,
  type PasskeyPlaces,
  type PublicKey,
} from "../../core/passkeys.ts";
import { LastKnown } from "../../core/shared-answers.ts";
import { isSignedByOwner } from "../../infra/chain/account-signature.ts";
import type { Chains } from "../../infra/chain/index.ts";

export interface Identity {
  address: Address;
  /** The chain of its contract; 0 for a plain key; PASSKEYS_CHAIN for an owner without a wallet. */
  chainId: number;
}

/**
 * now: a passkey that is listed now, at a page of ours. ever: a document that was checked when it was signed: the passkey may have
 * been removed since, and the pages may have moved.
 */
export type Time = "now" | "ever";
export type Verdict = "valid" | "invalid" | "unavailable";

/** An order as it is stored. */
export interface StoredOrder {
  document: unknown;
  digest: Hex;
  signature: Hex;
  chainId: number;
}

export interface OwnerSignaturesDeps {
  chains: Pick<Chains, "byChainId" | "verified">;
  /** Undefined: passkeys cannot be used here. */
  places: PasskeyPlaces | undefined;
  /** How many orders list this owner's passkeys, and those after the first `known`, oldest first. */
  listsOf(owner: Identity, known: number): Promise<{ count: number; next: StoredOrder[] }>;
}

/** What the verified orders of an owner say. */
interface Passkeys {
  orders: number;
  /** Undefined while no order lists them: an owner without a wallet has its first passkey. */
  now: PublicKey[] | undefined;
  ever: PublicKey[];
}

const REMEMBERED = 10_000;

export class OwnerSignatures {
  readonly #deps: OwnerSignaturesDeps;
  /** Fewer orders than are known here mean that old rows were restored. */
  readonly #known = new LastKnown<Passkeys>(REMEMBERED);

  constructor(deps: OwnerSignaturesDeps) {
    this.#deps = deps;
  }

  async isSigned(
    owner: Identity,
    signed: { hash: Hex; signature: Hex },
    time: Time = "now",
  ): Promise<Verdict> {
    if (!isPasskeySignature(signed.signature)) return this.#isSignedByWallet(owner, signed);
    const { places } = this.#deps;
    if (time === "now" && places === undefined) return "invalid";
    const by = passkeyThatSigned(signed, time === "now" ? places : undefined);
    const passkeys = by && (await this.#passkeysOf(owner));
    if (passkeys === "unavailable") return "unavailable";
    return passkeys && isAmong(by.key, owner, passkeys, time) ? "valid" : "invalid";
  }

  async #isSignedByWallet(
    owner: Identity,
    signed: { hash: Hex; signature: Hex },
  ): Promise<Verdict> {
    if (owner.chainId === PASSKEYS_CHAIN) return "invalid";
    return isSignedByOwner(this.#deps.chains, owner, signed);
  }

  /** Undefined if the orders do not follow from each other, or fewer are there than before. */
  async #passkeysOf(owner: Identity): Promise<Passkeys | "unavailable" | undefined> {
    const place = `${owner.address}|${owner.chainId}`;
    const nothing: Passkeys = { orders: 0, now: undefined, ever: [] };
    let passkeys = this.#known.get(place) ?? nothing;
    const { count, next } = await this.#deps.listsOf(owner, passkeys.orders);
    if (count < passkeys.orders) return undefined;
    for (const stored of next) {
      const order = readListOf(owner, stored, passkeys.orders + 1);
      if (!order) return undefined;
      const verdict = await this.#isListSigned(owner, stored, passkeys);
      if (verdict === "unavailable") return "unavailable";
      if (verdict === "invalid") return undefined;
      const now = order.passkeys.map(({ x, y }) => ({ x, y }));
      passkeys = { orders: passkeys.orders + 1, now, ever: [...passkeys.ever, ...now] };
    }
    const newest = this.#known.get(place) ?? nothing;
    if (passkeys.orders > newest.orders) this.#known.keep(place, passkeys);
    return passkeys;
  }

  /** A list is signed by the wallet, or by a passkey of the list before. */
  async #isListSigned(
    owner: Identity,
    { digest, signature }: StoredOrder,
    before: Passkeys,
  ): Promise<Verdict> {
    const signed = { hash: digest, signature };
    if (!isPasskeySignature(signature)) return this.#isSignedByWallet(owner, signed);
    const by = passkeyThatSigned(signed);
    return by && isAmong(by.key, owner, before, "now") ? "valid" : "invalid";
  }
}

const isAmong = (key: PublicKey, owner: Identity, { now, ever }: Passkeys, time: Time): boolean => {
  const isFirst = owner.chainId === PASSKEYS_CHAIN && addressOfPasskey(key) === owner.address;
  if (isFirst && (now === undefined || time === "ever")) return true;
  const listed = time === "now" ? (now ?? []) : ever;
  return listed.some(({ x, y }) => x === key.x && y === key.y);
};

function readListOf(
  owner: Identity,
  { document, digest, chainId }: StoredOrder,
  version: number,
): Orders["Passkeys"] | undefined {
  const order = readOrder("Passkeys", document as Orders["Passkeys"]);
  const isRight =
    order?.owner.toLowerCase() === owner.address &&
    order.version === String(version) &&
    formOf("Passkeys", order, chainId, digest) !== undefined;
  return isRight ? order : undefined;
}

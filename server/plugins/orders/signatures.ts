/**
 * Whether an owner signed: with its wallet (a key, or a contract on its chain), with one of its passkeys, or for a team with its
 * members' signatures. Which passkeys and members those are follows from orders that were signed, one after the other, and from
 * nothing else in the database.
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
import {
  isOwnSignature,
  isTeamSignature,
  TEAMS_CHAIN,
  writeTeamSignature,
} from "../../core/teams.ts";
import { TeamSignatures } from "./team-signatures.ts";
import type { Checked, Identity, ListsOf, Signed, StoredOrder, Time, Verdict } from "./types.ts";

export type { Identity, ListsOf, StoredOrder, Time, Verdict, Checked } from "./types.ts";

export interface OwnerSignaturesDeps {
  chains: Pick<Chains, "byChainId" | "verified">;
  /** Undefined: passkeys cannot be used here. */
  places: PasskeyPlaces | undefined;
  /** The orders that list an owner's passkeys. */
  listsOf: ListsOf;
  /** The orders that list a team's members. */
  membersOf: ListsOf;
}

/** What the verified orders of an owner say. */
interface Passkeys {
  orders: number;
  /** Undefined while no order lists them: an owner without a wallet has its first passkey. */
  now: PublicKey[] | undefined;
  ever: PublicKey[];
}

const REMEMBERED = 10_000;
/** Of one owner who is no team. It is stored, and a contract's may be any bytes. */
const MAX_SIGNATURE_BYTES = 8_192;

export class OwnerSignatures {
  readonly #deps: OwnerSignaturesDeps;
  /** Fewer orders than are known here mean that old rows were restored. */
  readonly #known = new LastKnown<Passkeys>(REMEMBERED);
  readonly teams: TeamSignatures;

  constructor(deps: OwnerSignaturesDeps) {
    this.#deps = deps;
    this.teams = new TeamSignatures({
      listsOf: deps.membersOf,
      isSignedByMember: (member, signed, time) => this.isSigned(member, signed, time),
    });
  }

  async isSigned(owner: Identity, signed: Signed, time: Time = "now"): Promise<Verdict> {
    if (owner.chainId === TEAMS_CHAIN) return this.teams.isSigned(owner, signed, time);
    if (isTeamSignature(signed.signature)) return "invalid";
    if (signed.signature.length > 2 + 2 * MAX_SIGNATURE_BYTES) return "invalid";
    if (!isPasskeySignature(signed.signature)) return this.#isSignedByWallet(owner, signed);
    const { places } = this.#deps;
    if (time === "now" && places === undefined) return "invalid";
    const by = passkeyThatSigned(signed, time === "now" ? places : undefined);
    const passkeys = by && (await this.#passkeysOf(owner));
    if (passkeys === "unavailable") return "unavailable";
    return passkeys && isAmong(by.key, owner, passkeys, time) ? "valid" : "invalid";
  }

  /** Like `isSigned` now, and a team may have signed in part: `member` sent a signature of its own, or the team's. */
  async check(
    owner: Identity & { member?: { address: Address } | null },
    signed: Signed,
  ): Promise<Checked> {
    const { signature } = signed;
    if (owner.chainId !== TEAMS_CHAIN)
      return { verdict: await this.isSigned(owner, signed), signature };
    const { member } = owner;
    const isOwn = member && !isTeamSignature(signature);
    if (isOwn && !isOwnSignature(signature)) return { verdict: "invalid", signature };
    const whole = isOwn
      ? (writeTeamSignature([{ address: member.address, signature }]) as Hex)
      : signature;
    const list = await this.teams.listInForce(owner);
    const progress =
      list && (await this.teams.progress(list, { ...signed, signature: whole }, "now"));
    // Only a member's request waits for others.
    if (!list || !progress || !(member || progress.isEnough))
      return { verdict: "invalid", signature: whole };
    const missing = progress.isEnough ? {} : { missing: progress };
    return { verdict: "valid", signature: whole, members: list.version, ...missing };
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

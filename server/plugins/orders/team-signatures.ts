/**
 * Whether enough members of a team signed. Who they are follows from orders that the members signed, one after the other, and from
 * nothing else in the database.
 */
import { zeroAddress, type Address, type Hex } from "viem";
import { formOf, readOrder, type Orders } from "../../core/orders.ts";
import { LastKnown } from "../../core/shared-answers.ts";
import {
  addressOfTeam,
  faultOfMembers,
  listOf,
  progressOf,
  readTeamSignature,
  signersFor,
  type Member,
  type MemberList,
  type Progress,
  type Purpose,
} from "../../core/teams.ts";
import type { Identity, ListsOf, Signed, StoredOrder, Time, Verdict } from "./types.ts";

interface TeamSignaturesDeps {
  /** The orders that list members. */
  listsOf: ListsOf;
  isSignedByMember(
    member: Identity,
    signed: { hash: Hex; signature: Hex },
    time: Time,
  ): Promise<Verdict>;
}

type CheckedMembers = Map<string, boolean>;

const RULES: Purpose = { kind: "rules" };
const REMEMBERED = 2_000;
/** Nobody changes the members of a team more often; more rows are not read. */
const MAX_LISTS = 1_000;

export class TeamSignatures {
  readonly #deps: TeamSignaturesDeps;
  /** The verified lists, oldest first. Fewer orders than are known here mean that old rows were restored. */
  readonly #known = new LastKnown<readonly MemberList[]>(REMEMBERED);

  constructor(deps: TeamSignaturesDeps) {
    this.#deps = deps;
  }

  /** The list in force; undefined if the lists do not follow from each other. */
  async listInForce(team: Identity): Promise<MemberList | undefined> {
    return (await this.#listsOf(team))?.at(-1);
  }

  /** `ever`: members of any list may have signed, if they were enough then. */
  async isSigned(team: Identity, signed: Signed, time: Time): Promise<Verdict> {
    const lists = await this.#listsOf(team);
    const counted = time === "now" ? lists?.slice(-1) : lists?.toReversed();
    const checked: CheckedMembers = new Map();
    for (const list of counted ?? [])
      if ((await this.progress(list, signed, time, checked))?.isEnough) return "valid";
    return "invalid";
  }

  /** Undefined if a part of the signature is not valid, or of somebody whose signature does not count. */
  async progress(
    list: MemberList | undefined,
    { hash, signature, purpose = RULES }: Signed,
    time: Time,
    /** Of this signature: a member of many lists is checked once. */
    checked: CheckedMembers = new Map(),
  ): Promise<Progress | undefined> {
    const parts = readTeamSignature(signature);
    if (!parts) return undefined;
    const allowed = new Map(signersFor(list, purpose).map((member) => [member.address, member]));
    for (const part of parts) {
      const member = allowed.get(part.address);
      const own = { hash, signature: part.signature as Hex };
      if (!member) return undefined;
      const who = `${member.address}|${member.chainId}`;
      const isSigned = checked.get(who) ?? (await this.#isSignedBy(member, own, time));
      checked.set(who, isSigned);
      if (!isSigned) return undefined;
    }
    return progressOf(list, purpose, new Set(parts.map(({ address }) => address)));
  }

  async #isSignedBy(
    { address, chainId }: Member,
    signed: { hash: Hex; signature: Hex },
    time: Time,
  ): Promise<boolean> {
    const member = { address: address as Address, chainId };
    return (await this.#deps.isSignedByMember(member, signed, time)) === "valid";
  }

  async #listsOf(team: Identity): Promise<readonly MemberList[] | undefined> {
    let lists = this.#known.get(team.address) ?? [];
    const { count, next } = await this.#deps.listsOf(team, lists.length);
    if (count < lists.length || count > MAX_LISTS) return undefined;
    for (const stored of next) {
      const list = await this.#read(team, stored, lists.at(-1));
      if (!list) return undefined;
      lists = [...lists, list];
    }
    if (lists.length > (this.#known.get(team.address) ?? []).length)
      this.#known.keep(team.address, lists);
    return lists.length === 0 ? undefined : lists;
  }

  /** The list of a stored order, if it follows the one before. */
  async #read(
    team: Identity,
    { document, digest, signature, chainId }: StoredOrder,
    before: MemberList | undefined,
  ): Promise<MemberList | undefined> {
    const order = readOrder("Members", document as Orders["Members"]);
    if (!order || formOf("Members", order, chainId, digest) === undefined) return undefined;
    const isOwn = before
      ? order.owner.toLowerCase() === team.address
      : order.owner === zeroAddress && addressOfTeam(digest) === team.address;
    const version = (before?.version ?? 0) + 1;
    if (!isOwn || order.version !== String(version) || faultOfMembers(order, before) !== undefined)
      return undefined;
    const list = listOf(order);
    const purpose = { kind: "members", next: list } as const;
    const progress = await this.progress(before, { hash: digest, signature, purpose }, "ever");
    return progress?.isEnough ? list : undefined;
  }
}

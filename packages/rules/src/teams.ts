/**
 * A team: an owner account of several people. Which of them may sign follows from `Members` orders, each signed by the admins of
 * the list before it. The signature of a team is one text: its members' own signatures, which fits wherever a wallet's does.
 *
 * Bytes: "team1", then for each signer, in the order of their addresses: address (20), length (2), that member's signature.
 */
import type { MembersOrder, OrderKind, Orders } from "./orders.ts";
import { PASSKEYS_CHAIN } from "./passkeys.ts";

/** The `chainId` of a team. Its address is the end of the digest of its first list, and holds no money. */
export const TEAMS_CHAIN = 2_147_483_646;
export const MAX_MEMBERS = 50;

export const ROLES = ["viewer", "approver", "admin"] as const;
export type Role = (typeof ROLES)[number];

export interface Member {
  name: string;
  /** Lower case. */
  address: string;
  chainId: number;
  role: Role;
}

export interface MemberList {
  version: number;
  name: string;
  threshold: number;
  /** One approver may allow one payment of at most this amount. */
  approvalAboveAtomic: bigint;
  members: readonly Member[];
}

const isRole = (text: string): text is Role => (ROLES as readonly string[]).includes(text);
const NOBODY = `0x${"0".repeat(40)}`;
const MAX_CHAIN = 2_147_483_647n;

/** Why nobody may sign this list; undefined if it is sound. */
export function faultOfMembers(
  { threshold, members }: MembersOrder,
  before?: MemberList,
): string | undefined {
  if (members.length === 0) return "has no members";
  if (members.length > MAX_MEMBERS) return `has more than ${MAX_MEMBERS} members`;
  const accounts = members.map(({ account }) => account.toLowerCase());
  if (new Set(accounts).size < accounts.length) return "names a member twice";
  for (const { account, chain, role } of members) {
    if (account.toLowerCase() === NOBODY) return "names the zero address";
    if (!isRole(role)) return `has the unknown role ${role}`;
    if (BigInt(chain) === BigInt(TEAMS_CHAIN)) return "names a team as a member";
    if (BigInt(chain) > MAX_CHAIN) return "has an unknown chain";
    // What a contract accepted once can no longer be checked later, and every list is checked again.
    if (role !== "viewer" && ![0, PASSKEYS_CHAIN].includes(Number(chain)))
      return "names a contract account as approver or admin: it can only be a viewer";
    const known = before?.members.find(({ address }) => address === account.toLowerCase());
    if (known && decides(known) && known.chainId !== Number(chain))
      return "changes what kind of account a member has";
  }
  const admins = members.filter(({ role }) => role === "admin").length;
  if (admins === 0) return "has no admin";
  if (BigInt(threshold) === 0n) return "needs at least one signature";
  if (BigInt(threshold) > BigInt(admins))
    return `needs the signatures of ${threshold} admins, and has ${admins}`;
  return undefined;
}

/** The list of an order without a fault. */
export const listOf = (order: MembersOrder): MemberList => ({
  version: Number(order.version),
  name: order.name,
  threshold: Number(order.threshold),
  approvalAboveAtomic: BigInt(order.approvalAbove),
  members: order.members.map(({ name, account, chain, role }) => ({
    name,
    address: account.toLowerCase(),
    chainId: Number(chain),
    role: role as Role,
  })),
});

/** What an order does, as far as it decides who of a team must sign it. What is not named here is for admins. */
export type Purpose =
  | { kind: "rules" }
  | { kind: "approval"; amountAtomic: bigint }
  | { kind: "members"; next: MemberList };

export function purposeOf<K extends OrderKind>(kind: K, order: Orders[K]): Purpose {
  if (kind === "ApprovePayment")
    return {
      kind: "approval",
      amountAtomic: BigInt((order as Orders["ApprovePayment"]).maxAmount),
    };
  if (kind === "Members") return { kind: "members", next: listOf(order as MembersOrder) };
  return { kind: "rules" };
}

const decides = ({ role }: Member): boolean => role !== "viewer";

/** Those who get a vote with this list: each of them signs it, so that no typo and no unwilling person is in it. */
export const newlyNamed = (before: MemberList | undefined, next: MemberList): Member[] =>
  next.members.filter((member) => {
    const known = before?.members.find(({ address }) => address === member.address);
    return decides(member) && !(known && decides(known));
  });

/** The members whose signature of such an order counts. `list`: the one in force; undefined before the first. */
export function signersFor(list: MemberList | undefined, purpose: Purpose): Member[] {
  const voters = (list?.members ?? []).filter(({ role }) =>
    purpose.kind === "approval" ? role !== "viewer" : role === "admin",
  );
  return purpose.kind === "members" ? [...voters, ...newlyNamed(list, purpose.next)] : voters;
}

export interface Progress {
  isEnough: boolean;
  /** Addresses of those who signed, and count. */
  collected: string[];
  /** How many signatures are needed in all. */
  needed: number;
  /** Those who must sign, whichever others do. */
  missing: string[];
}

/** `signed`: the addresses of those with a valid signature, in lower case. */
export function progressOf(
  list: MemberList | undefined,
  purpose: Purpose,
  signed: ReadonlySet<string>,
): Progress {
  const named = purpose.kind === "members" ? newlyNamed(list, purpose.next) : [];
  const missing = named.map(({ address }) => address).filter((address) => !signed.has(address));
  const isVoter = ({ address, role }: Member): boolean =>
    signed.has(address) &&
    (role === "admin" || (purpose.kind === "approval" && role === "approver"));
  const votes = (list?.members ?? []).filter(isVoter).length;
  const isSmall =
    purpose.kind === "approval" && list && purpose.amountAtomic <= list.approvalAboveAtomic;
  const threshold = isSmall ? 1 : (list?.threshold ?? 0);
  const collected = signersFor(list, purpose)
    .map(({ address }) => address)
    .filter((address) => signed.has(address));
  // A newly named admin was no admin before: that signature accepts, and is no vote.
  const needed = threshold + named.length;
  return { isEnough: votes >= threshold && missing.length === 0, collected, needed, missing };
}

export interface MemberSignature {
  /** Lower case. */
  address: string;
  signature: string;
}

const MAGIC = "7465616d31";
const PREFIX = `0x${MAGIC}`;
const ADDRESS_DIGITS = 40;
const LENGTH_DIGITS = 4;
/** A passkey's has about 400 bytes. With longer ones, those of all members would not fit into one request. */
const MAX_OWN_BYTES = 1_024;

export const isTeamSignature = (signature: string): boolean =>
  signature.slice(0, PREFIX.length).toLowerCase() === PREFIX;

/** Whether it has the size of one member's own signature. */
export const isOwnSignature = (signature: string): boolean =>
  signature.length > 2 && signature.length <= 2 + 2 * MAX_OWN_BYTES;

/** One signature of each member counts: the first. */
export function writeTeamSignature(signatures: readonly MemberSignature[]): string {
  const byAddress = new Map<string, string>();
  for (const { address, signature } of signatures) {
    const digits = signature.slice(2).toLowerCase();
    if (!/^(?:[0-9a-f]{2})+$/.test(digits)) throw new Error("a signature has whole bytes");
    if (!isOwnSignature(signature)) throw new Error("a signature is too long");
    const key = address.slice(2).toLowerCase();
    if (!byAddress.has(key)) byAddress.set(key, digits);
  }
  const parts = [...byAddress]
    .toSorted(([left], [right]) => (left < right ? -1 : 1))
    .map(([key, digits]) => {
      const length = (digits.length / 2).toString(16).padStart(LENGTH_DIGITS, "0");
      return `${key}${length}${digits}`;
    });
  return `${PREFIX}${parts.join("")}`;
}

/**
 * Undefined if it is no signature of a team, or not the only spelling of one: addresses ascend, so nobody is in it twice. Whether
 * its parts are valid is not checked.
 */
export function readTeamSignature(signature: string): MemberSignature[] | undefined {
  const digits = signature.slice(2).toLowerCase();
  if (!isTeamSignature(signature) || !/^(?:[0-9a-f]{2})+$/.test(digits)) return undefined;
  const found: MemberSignature[] = [];
  let at = MAGIC.length;
  while (at < digits.length) {
    const address = `0x${digits.slice(at, at + ADDRESS_DIGITS)}`;
    const from = at + ADDRESS_DIGITS + LENGTH_DIGITS;
    const length = Number.parseInt(digits.slice(from - LENGTH_DIGITS, from), 16);
    const end = from + length * 2;
    const last = found.at(-1);
    // Without digits the length is no number.
    const isRight = length > 0 && length <= MAX_OWN_BYTES && end <= digits.length;
    if (!isRight || (last && last.address >= address)) return undefined;
    found.push({ address, signature: `0x${digits.slice(from, end)}` });
    at = end;
  }
  return found.length === 0 || found.length > 2 * MAX_MEMBERS ? undefined : found;
}

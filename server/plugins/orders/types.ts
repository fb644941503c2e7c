/** What the files of this folder share about owners, orders and signatures. */
import type { Address, Hex } from "viem";
import type { Form, OrderKind, Orders } from "../../core/orders.ts";
import type { Progress, Purpose } from "../../core/teams.ts";

export interface Identity {
  address: Address;
  /** The chain of its contract; 0 for a plain key; PASSKEYS_CHAIN for an owner without a wallet; TEAMS_CHAIN for a team. */
  chainId: number;
}

/**
 * now: a passkey that is listed now, at a page of ours. ever: a document that was checked when it was signed: the passkey may have
 * been removed since, and the pages may have moved.
 */
export type Time = "now" | "ever";
export type Verdict = "valid" | "invalid" | "unavailable";

/** A signature that was checked. */
export interface Checked {
  verdict: Verdict;
  /** As it is stored: a member's signature becomes the team's. */
  signature: Hex;
  /** Valid, but not enough members of the team have signed. */
  missing?: Progress;
  /** Of a team: the version of the list of members with which it was counted. */
  members?: number;
}

/** An order as it is stored. */
export interface StoredOrder {
  document: unknown;
  digest: Hex;
  signature: Hex;
  chainId: number;
}

/** How many orders of one kind this owner signed, and those after the first `known`, oldest first. */
export type ListsOf = (
  owner: Identity,
  known: number,
) => Promise<{ count: number; next: StoredOrder[] }>;

export interface Signed {
  hash: Hex;
  signature: Hex;
  /** What the order does; missing: what only admins may do. */
  purpose?: Purpose | undefined;
}

/** An order with a verified signature of the owner; the transaction that uses it checks whether it is still valid. */
export interface SignedOrder<K extends OrderKind = OrderKind> {
  kind: K;
  chainId: number;
  order: Orders[K];
  form: Form;
  digest: Hex;
  signature: Hex;
  /** Set if not enough members of a team have signed yet: then it is checked, and waits. */
  missing?: Progress;
  /** Of a team: the version of the list of members with which it was counted. */
  members?: number;
}

/** The request of a member of a team, as any member may send it again. */
export interface SentRequest {
  method: string;
  path: string;
  body: unknown;
}

export interface OrderOwner {
  id: string;
  address: Address;
  chainId: number;
  /** Set if the owner's recovery wallet signed in. */
  second?: { address: Address; chainId: number } | null;
  /** Set if a member acts for a team. */
  member?: { ownerId: string; address: Address; sent: () => SentRequest } | null;
}

/** The members of a team in one form, whether they come from the service, a form or an order, so that they can be compared. */
import {
  type MembersOrder,
  REQUESTED_FORM,
  TEAM_ORDER_SECONDS,
  typedDataOf,
} from "../../../../packages/rules/src/orders.ts";
import { PASSKEYS_CHAIN } from "../../../../packages/rules/src/passkeys.ts";
import type { MemberList, Role } from "../../../../packages/rules/src/teams.ts";
import { atomic, formatUsdc } from "../money.ts";
import type { Team } from "../wire.ts";
import { assertSingleUse } from "./requests.ts";
import { OrderMismatch } from "./signing.ts";
import type { Change } from "./terms.ts";

export interface MemberTerms {
  name: string;
  /** With its checksum. */
  address: string;
  role: Role;
}

export interface TeamTerms {
  name: string;
  threshold: number;
  approvalAboveAtomic: bigint;
  members: readonly MemberTerms[];
}

export const termsOfTeam = (team: Team): TeamTerms => ({
  name: team.name,
  threshold: team.threshold,
  approvalAboveAtomic: atomic(team.approvalAbove),
  members: team.members.map(({ name, address, role }) => ({ name, address, role: role as Role })),
});

export const termsOfMembers = (order: MembersOrder): TeamTerms => ({
  name: order.name,
  threshold: Number(order.threshold),
  approvalAboveAtomic: BigInt(order.approvalAbove),
  members: order.members.map(({ name, account, role }) => ({
    name,
    address: account,
    role: role as Role,
  })),
});

const keyOf = (address: string): string => address.toLowerCase();

/** As the rules of teams read it. What kind of account a new member has is the service's to say. */
export const listOfTerms = (terms: TeamTerms, version: number, team?: Team): MemberList => ({
  version,
  name: terms.name,
  threshold: terms.threshold,
  approvalAboveAtomic: terms.approvalAboveAtomic,
  members: terms.members.map(({ name, address, role }) => ({
    name,
    address: keyOf(address),
    chainId: chainIdIn(team, address),
    role,
  })),
});

/** Any contract is as good as another here: none may decide. */
const SOME_CONTRACT = 1;
const CHAIN_IDS: Readonly<Record<string, number>> = {
  wallet: 0,
  passkeys: PASSKEYS_CHAIN,
};

const chainIdIn = (team: Team | undefined, address: string): number => {
  const known = team?.members.find((member) => keyOf(member.address) === keyOf(address));
  return known ? (CHAIN_IDS[known.signsWith] ?? SOME_CONTRACT) : 0;
};

const amountText = (atomicAmount: bigint): string =>
  atomicAmount === 0n ? "nothing" : `${formatUsdc(atomicAmount)} USDC`;
const adminsText = (threshold: number): string =>
  threshold === 1 ? "1 admin" : `${threshold} admins`;
const nameOf = ({ name, address }: MemberTerms): string => `${name} (${address})`;

/** Without `before`, the whole list. */
export function diffMembers(before: TeamTerms | undefined, after: TeamTerms): Change[] {
  const changes: Change[] = [];
  const note = (what: string, was: string | undefined, is: string): void => {
    if (was !== is) changes.push({ what, before: was ?? "", after: is });
  };
  note("Name of the team", before?.name, after.name);
  note("Must sign", before && adminsText(before.threshold), adminsText(after.threshold));
  note(
    "One approver alone",
    before && amountText(before.approvalAboveAtomic),
    amountText(after.approvalAboveAtomic),
  );
  const old = new Map(before?.members.map((member) => [keyOf(member.address), member]));
  const now = new Map(after.members.map((member) => [keyOf(member.address), member]));
  for (const [key, member] of now) {
    const was = old.get(key);
    if (!was)
      changes.push({
        what: before ? "Member added" : "Member",
        before: "",
        after: `${nameOf(member)}: ${member.role}`,
      });
    else {
      note(`Role of ${member.name}`, was.role, member.role);
      note("Renamed", nameOf(was), nameOf(member));
    }
  }
  for (const [key, member] of old)
    if (!now.has(key))
      changes.push({
        what: "Member removed",
        before: `${nameOf(member)}: ${member.role}`,
        after: "",
      });
  return changes;
}

const textOf = ({ name, threshold, approvalAboveAtomic, members }: TeamTerms): string =>
  JSON.stringify([
    name,
    threshold,
    String(approvalAboveAtomic),
    members.map((member) => [member.name, keyOf(member.address), member.role]),
  ]);

/** What the wallet signs, after a comparison with what the screen shows. `owner`: the zero address for a new team. */
export function membersToSign(
  order: MembersOrder,
  wanted: TeamTerms & { owner: string; version: number },
  chainId: number,
) {
  assertSingleUse({ ...order }, TEAM_ORDER_SECONDS);
  const same = (what: string, before: string, after: string): void => {
    if (before !== after) throw new OrderMismatch([{ what, before, after }]);
  };
  same("Team", keyOf(wanted.owner), keyOf(order.owner));
  same("Version of the list", String(wanted.version), order.version);
  const ordered = termsOfMembers(order);
  if (textOf(ordered) !== textOf(wanted)) throw new OrderMismatch(diffMembers(wanted, ordered));
  return typedDataOf("Members", order, chainId, REQUESTED_FORM);
}

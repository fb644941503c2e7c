/** The draft of a team's list of members: what is wrong with it, who must sign it, and what a lost key would do. */
import {
  faultOfMembers,
  newlyNamed,
  progressOf,
  type Role,
} from "../../../../packages/rules/src/teams.ts";
import {
  diffMembers,
  listOfTerms,
  type MemberTerms,
  type TeamTerms,
  termsOfTeam,
} from "../../lib/orders/members.ts";
import type { Change } from "../../lib/orders/terms.ts";
import { parseUsdc } from "../../lib/money.ts";
import { plural } from "../../lib/plural.ts";
import type { Team } from "../../lib/wire.ts";

export const ROLE_NAMES: Readonly<Record<Role, string>> = {
  viewer: "Viewer: reads everything",
  approver: "Approver: also stops, lowers, allows one payment",
  admin: "Admin: also signs rules, withdrawals and members",
};
export const ROLES = Object.entries(ROLE_NAMES).map(([value, label]) => ({ value, label }));

/** As the form has it. */
export interface MembersDraft {
  name: string;
  threshold: number;
  approvalAbove: string;
  members: MemberTerms[];
}

export const draftOf = ({ name, threshold, approvalAbove, members }: Team): MembersDraft => ({
  name,
  threshold,
  approvalAbove,
  members: members.map((member) => ({ ...member, role: member.role as Role })),
});

export interface CheckedDraft {
  changes: Change[];
  /** A sentence; undefined if the list may be signed. */
  fault?: string;
  terms: TeamTerms;
  /** Whose signature it needs. */
  signers: string;
  /** This person's signature is all that it needs. */
  isEnough: boolean;
  warning: string | undefined;
}

export function checkDraft(draft: MembersDraft, team: Team, account: string): CheckedDraft {
  const amount = parseUsdc(draft.approvalAbove);
  const members = draft.members.map(({ name, address, role }) => ({
    name: name.trim(),
    address,
    role,
  }));
  const { threshold } = draft;
  const terms = { name: draft.name.trim(), threshold, approvalAboveAtomic: amount ?? 0n, members };
  const before = listOfTerms(termsOfTeam(team), team.version, team);
  const next = listOfTerms(terms, team.version + 1, team);
  const purpose = { kind: "members", next } as const;
  const { isEnough } = progressOf(before, purpose, new Set([account.toLowerCase()]));
  return {
    changes: diffMembers(termsOfTeam(team), terms),
    fault: faultOf(terms, amount === undefined, team),
    terms,
    signers: signersOf(
      before.threshold,
      newlyNamed(before, next).map(({ name }) => name),
    ),
    isEnough,
    warning: warningOf(terms),
  };
}

function faultOf(terms: TeamTerms, isAmountWrong: boolean, team: Team): string | undefined {
  if (terms.name === "") return "Give the team a name.";
  if (terms.members.some(({ name }) => name === "")) return "Give every member a name.";
  if (isAmountWrong) return "Enter an amount such as 5 or 0.25, with at most 6 decimals.";
  const list = listOfTerms(terms, team.version + 1, team);
  const signed = list.members.map(({ name, address, chainId, role }) => ({
    name,
    account: address,
    chain: String(chainId),
    role,
  }));
  const fault = faultOfMembers(
    {
      owner: team.owner,
      version: String(list.version),
      name: list.name,
      threshold: String(list.threshold),
      approvalAbove: String(list.approvalAboveAtomic),
      members: signed,
      nonce: "",
      deadline: "",
    },
    // What kind of account a new member has is not known here, so only known ones are compared.
    listOfTerms(termsOfTeam(team), team.version, team),
  );
  return fault === undefined ? undefined : `This list ${fault}.`;
}

function signersOf(threshold: number, added: readonly string[]): string {
  const admins = `${plural(threshold, "admin")} of the team ${threshold === 1 ? "signs" : "sign"}`;
  if (added.length === 0) return `${admins} this.`;
  return `${admins} this, and ${listed(added)} ${added.length === 1 ? "accepts" : "accept"} by signing too.`;
}

const listed = (names: readonly string[]): string =>
  names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;

/** What a lost key would do. */
export function warningOf({ threshold, members }: TeamTerms): string | undefined {
  const admins = members.filter(({ role }) => role === "admin").length;
  if (threshold < admins || admins === 0) return undefined;
  return admins === 1
    ? "Only one admin can sign. If that key is lost, nobody can change rules, members or the payout address any more."
    : `All ${admins} admins must sign. If one key is lost, nobody can change rules, members or the payout address any more.`;
}

export const accountKind = (signsWith: string): string =>
  signsWith === "passkeys" ? "passkeys" : signsWith === "contract" ? "contract" : "wallet";

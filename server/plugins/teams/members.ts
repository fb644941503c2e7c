/** The members of a team: the first list makes the team, and each later one is signed by the members of the list before it. */
import { getAddress, zeroAddress, type Address, type Hex } from "viem";
import type { Static } from "typebox";
import { formatAtomic, parseDecimal } from "../../core/money.ts";
import { TEAM_ORDER_SECONDS, type MembersOrder, type SignedMember } from "../../core/orders.ts";
import { PASSKEYS_CHAIN } from "../../core/passkeys.ts";
import {
  addressOfTeam,
  faultOfMembers,
  listOf,
  TEAMS_CHAIN,
  writeTeamSignature,
  type MemberList,
} from "../../core/teams.ts";
import { ApiError } from "../../errors.ts";
import type { MembersBody, NewTeamBody } from "../../schemas/teams.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { readAddress } from "../agents/rules.ts";
import { assertCountsOn, SignatureNeeded, type Draft } from "../orders/orders.ts";
import type { OwnerSignatures } from "../orders/signatures.ts";
import { endAllWaiting } from "../orders/waiting.ts";
import { lockMembersToChange } from "../orders/team-store.ts";
import { ensureOwner, lockOwner, signsWith } from "../owners/store.ts";
import type { OwnerCall } from "../passkeys/call.ts";
import { readName } from "../passkeys/name.ts";
import { lastVersion } from "../passkeys/store.ts";
import { chainOf, countTeamsOf, writeMembers } from "./store.ts";

export interface TeamCall extends OwnerCall {
  signatures: OwnerSignatures;
}

const MAX_TEAMS = 20;
const MAX_LISTS = 1_000;

/** Makes a team with one member, who signs its first list. */
export async function makeTeam(
  call: TeamCall,
  { name, memberName, authorization }: Static<typeof NewTeamBody>,
): Promise<Address> {
  const { owner, orders, chainId } = call;
  if (![0, PASSKEYS_CHAIN].includes(owner.chainId))
    throw new ApiError("conflict", {
      detail:
        "A contract account cannot be an admin of a team, because its signatures cannot be checked again later. Sign in with a wallet's key or a passkey.",
    });
  const member: SignedMember = {
    name: readName(memberName),
    account: getAddress(owner.address),
    chain: String(owner.chainId),
    role: "admin",
  };
  const draft = membersDraft(chainId, {
    owner: zeroAddress,
    version: "1",
    name: readName(name),
    threshold: "1",
    approvalAbove: "0",
    members: [member],
  });
  const signed = authorization && (await orders.verify(owner, "Members", authorization, chainId));
  return orders.requestingSignature(owner, () =>
    call.prisma.$transaction(async (tx) => {
      if (!(await lockOwner(tx, owner.id))) throw new ApiError("not_found");
      if ((await countTeamsOf(tx, owner)) >= MAX_TEAMS)
        throw new ApiError("conflict", { detail: `You decide in ${MAX_TEAMS} teams already.` });
      if (!signed) throw new SignatureNeeded(draft, "owner_signature_required");
      const address = addressOfTeam(signed.digest);
      const id = await ensureOwner(tx, address, TEAMS_CHAIN);
      await assertCountsOn(tx, owner, signed);
      const signature = writeTeamSignature([
        { address: owner.address, signature: signed.signature },
      ]) as Hex;
      await orders.use(tx, { id, address, chainId: TEAMS_CHAIN }, { ...signed, signature }, draft);
      await writeMembers(tx, id, listOf(signed.order));
      return address;
    }),
  );
}

/** Replaces the list of members. Everybody who gets a vote with it signs it too. */
export async function changeMembers(call: TeamCall, body: MembersBody): Promise<void> {
  const { owner, orders, chainId } = call;
  const before = await listInForce(call);
  const wanted = await readMembers(call, body, before);
  const fault = faultOfMembers({ ...wanted, nonce: "", deadline: "" }, before);
  if (fault !== undefined) throw refuseField("validation_failed", "body.members", fault);
  const { authorization } = body;
  const signed = authorization && (await orders.verify(owner, "Members", authorization, chainId));
  await orders.requestingSignature(owner, () =>
    call.prisma.$transaction(async (tx) => {
      if (!(await lockOwner(tx, owner.id))) throw new ApiError("not_found");
      await lockMembersToChange(tx, owner.id);
      const version = (await lastVersion(tx, owner.id, "Members")) + 1;
      if (version > MAX_LISTS)
        throw new ApiError("conflict", {
          detail: `A team changes its members at most ${MAX_LISTS} times.`,
        });
      const draft = membersDraft(chainId, { ...wanted, version: String(version) });
      if (!signed) throw new SignatureNeeded(draft, "owner_signature_required");
      // Two lists that were signed at once follow the same one: the second is no longer next.
      await orders.use(tx, owner, signed, draft);
      await writeMembers(tx, owner.id, listOf(signed.order));
      await endAllWaiting(tx, owner.id);
    }),
  );
}

async function readMembers(
  { prisma, owner }: TeamCall,
  body: MembersBody,
  before: MemberList,
): Promise<Omit<MembersOrder, "nonce" | "deadline">> {
  const amount = parseDecimal(body.approvalAbove);
  if (!amount.ok) throw refuseField("invalid_amount", "body.approvalAbove", amount.reason);
  const members: SignedMember[] = [];
  for (const [index, member] of body.members.entries()) {
    const address = readAddress(member.address, `body.members.${index}.address`);
    const known = before.members.find((one) => one.address === address);
    const chain = known?.chainId ?? (await chainOf(prisma, address));
    const { role } = member;
    const name = readName(member.name);
    members.push({ name, account: getAddress(address), chain: String(chain), role });
  }
  return {
    owner: getAddress(owner.address),
    version: String(before.version + 1),
    name: readName(body.name),
    threshold: String(body.threshold),
    approvalAbove: String(amount.atomic),
    members,
  };
}

const membersDraft = (
  chainId: number,
  order: Omit<MembersOrder, "nonce" | "deadline">,
): Draft<"Members"> => ({
  kind: "Members",
  // Not about an agent.
  agentId: "",
  chainId,
  // The column is of policies: the number of a team's orders gives this version.
  version: null,
  validSeconds: TEAM_ORDER_SECONDS,
  build: ({ nonce, deadlineSeconds }) => ({ ...order, nonce, deadline: String(deadlineSeconds) }),
});

export async function listInForce({ owner, signatures }: Pick<TeamCall, "owner" | "signatures">) {
  if (owner.chainId !== TEAMS_CHAIN)
    throw new ApiError("conflict", {
      detail: "Act for a team first: you act for your own account.",
    });
  const list = await signatures.teams.listInForce(owner);
  if (!list) throw new ApiError("policy_not_signed");
  return list;
}

export function viewTeam(owner: Address, list: MemberList) {
  const { name, version, threshold, approvalAboveAtomic, members } = list;
  return {
    owner: getAddress(owner),
    name,
    version,
    threshold,
    approvalAbove: formatAtomic(approvalAboveAtomic),
    members: members.map((member) => ({
      name: member.name,
      address: getAddress(member.address),
      signsWith: signsWith(member.chainId),
      role: member.role,
    })),
    warning: warningOf(list),
  };
}

/** What a lost key would do to this team. */
function warningOf({ threshold, members }: MemberList): string | null {
  const admins = members.filter(({ role }) => role === "admin").length;
  if (threshold < admins) return null;
  const who =
    admins === 1
      ? "Only one admin can sign, and with that key lost nobody can"
      : `All ${admins} admins must sign, and with one key lost nobody can`;
  return `${who} change rules, members or the payout address any more. Add an admin, or name a recovery wallet: it can stop the agents and withdraw to the payout address.`;
}

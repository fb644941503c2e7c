import { queryOptions } from "@tanstack/react-query";
import type { MembersOrder } from "../../../../packages/rules/src/orders.ts";
import { api } from "../../lib/api.ts";
import { chainIdIn, readWaiting, toSignOf } from "../../lib/orders/waiting.ts";
import { signed, signOrder } from "../../lib/orders/signed.ts";
import type { SignatureRequest } from "../../lib/orders/signing.ts";
import {
  diffMembers,
  membersToSign,
  type TeamTerms,
  termsOfTeam,
} from "../../lib/orders/members.ts";
import { toDecimal } from "../../lib/money.ts";
import { keys } from "../../lib/query-keys.ts";
import type { NetworkInfo, Team, WaitingOrder } from "../../lib/wire.ts";

/** What an order changes, in plain words. */
export const readingQuery = (waiting: WaitingOrder) =>
  queryOptions({
    queryKey: keys.waitingReading(waiting.id),
    queryFn: () => readWaiting(waiting),
  });

const NO_TEAM = `0x${"0".repeat(40)}`;

const chainIdOf = (network: NetworkInfo | undefined): number => {
  if (!network) throw new Error("The network is not known yet. Try again in a moment.");
  return network.chainId;
};

/** Makes a team whose only member and admin is this account. */
export function makeTeam(
  { name, memberName }: { name: string; memberName: string },
  { account, network }: { account: string; network: NetworkInfo | undefined },
): Promise<{ owner: string }> {
  const terms: TeamTerms = {
    name,
    threshold: 1,
    approvalAboveAtomic: 0n,
    members: [{ name: memberName, address: account, role: "admin" }],
  };
  const request = membersRequest(`Make the team ${name}`, terms, {
    owner: NO_TEAM,
    version: 1,
    chainId: chainIdOf(network),
  });
  return signed(request, (authorization) =>
    api.post("/api/teams", { name, memberName, ...authorization }),
  );
}

export function changeMembers(
  team: Team,
  terms: TeamTerms,
  network: NetworkInfo | undefined,
): Promise<Team> {
  const request = membersRequest(`Change the members of ${team.name}`, terms, {
    owner: team.owner,
    version: team.version + 1,
    chainId: chainIdOf(network),
    before: termsOfTeam(team),
  });
  const { name, threshold, approvalAboveAtomic, members } = terms;
  const body = { name, threshold, approvalAbove: toDecimal(approvalAboveAtomic), members };
  return signed(request, (authorization) =>
    api.put("/api/team/members", { ...body, ...authorization }),
  );
}

function membersRequest(
  title: string,
  terms: TeamTerms,
  on: { owner: string; version: number; chainId: number; before?: TeamTerms },
): SignatureRequest {
  const wanted = { ...terms, owner: on.owner, version: on.version };
  const kind = (order: object) => membersToSign(order as MembersOrder, wanted, on.chainId);
  return {
    kind,
    title,
    chainId: on.chainId,
    effect: "Signing is free and moves no money.",
    isOnScreen: true,
    read(order) {
      kind(order);
      return Promise.resolve({ changes: diffMembers(on.before, terms), hasUnseenChanges: false });
    },
  };
}

const pathOf = ({ id }: WaitingOrder): string => `/api/waiting-orders/${encodeURIComponent(id)}`;

/** Adds this person's signature. Nothing is carried out by it. */
export function signWaiting(waiting: WaitingOrder): Promise<WaitingOrder> {
  const request: SignatureRequest = {
    kind: () => toSignOf(waiting),
    title: `Sign for ${waiting.team.name}`,
    chainId: chainIdIn(waiting),
    effect: "The order is carried out when enough members have signed it.",
    isOnScreen: true,
    read: async () => ({ changes: (await readWaiting(waiting)).changes, hasUnseenChanges: false }),
  };
  const send = ({ authorization }: { authorization?: { signature: string } }) => {
    if (!authorization) throw new Error("This order has expired. Ask for it again.");
    const { signature } = authorization;
    return api.post<WaitingOrder>(`${pathOf(waiting)}/sign`, { signature });
  };
  return signOrder(request, send, waiting.order as Record<string, unknown>);
}

export const withdrawWaiting = (waiting: WaitingOrder): Promise<unknown> =>
  api.delete(pathOf(waiting));

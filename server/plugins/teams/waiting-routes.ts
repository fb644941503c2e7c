/** Orders that wait for signatures: members of the team read and sign them, and so do people whom a new list of members names. */
import type { FastifyRequest } from "fastify";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress, type Address, type Hex } from "viem";
import { TEAMS_CHAIN, type MemberList } from "../../core/teams.ts";
import { ApiError } from "../../errors.ts";
import { IdParams } from "../../schemas/common.ts";
import { Done } from "../../schemas/owners.ts";
import { SignWaitingBody, WaitingOrder, WaitingOrders } from "../../schemas/teams.ts";
import { acceptEmptyJson } from "../http/index.ts";
import { assertCountsOn, orderNotSigned } from "../orders/orders.ts";
import {
  addSignature,
  digestOf,
  findWaiting,
  invitationsOf,
  isInvited,
  listWaiting,
  progressWith,
  requestOf,
  signerAs,
  typedDataFor,
  withdrawWaiting,
  type WaitingRow,
} from "../orders/waiting.ts";

/** A waiting order that the caller may read, with the list of members in force. */
interface Found {
  row: WaitingRow;
  team: Address;
  list: MemberList;
}

const waitingRoutes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const tags = ["owners: teams"];

  app.get(
    "/api/waiting-orders",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "listWaitingOrders",
        summary: "Orders of the team that wait for signatures; for your own account: invitations",
        response: { 200: WaitingOrders },
      },
    },
    async ({ owner }) => {
      const rows = owner.member
        ? await listWaiting(app.prisma, owner.id)
        : await invitationsOf(app.prisma, owner.address);
      const found = await Promise.all(rows.map(async (row) => readable(owner, row)));
      return { items: found.flatMap((one) => (one ? [view(owner, one)] : [])) };
    },
  );

  app.get(
    "/api/waiting-orders/:id",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "getWaitingOrder",
        summary: "One of these orders, with the request that it permits",
        params: IdParams,
        response: { 200: WaitingOrder },
      },
    },
    async ({ owner, params }) => view(owner, await find(owner, params.id)),
  );

  app.post(
    "/api/waiting-orders/:id/sign",
    {
      config: {
        auth: "owner",
        team: "approver",
        errors: ["invalid_signature", "chain_unavailable"],
      },
      schema: {
        tags,
        operationId: "signWaitingOrder",
        summary: "Add your own signature; the answer has the request to send once it is complete",
        params: IdParams,
        body: SignWaitingBody,
        response: { 200: WaitingOrder },
      },
    },
    async ({ owner, params, body }) => {
      const found = await find(owner, params.id);
      const row = await sign(owner, found, body.signature.toLowerCase() as Hex);
      return view(owner, { ...found, row });
    },
  );

  app.delete(
    "/api/waiting-orders/:id",
    {
      config: { auth: "owner", team: "approver" },
      schema: {
        tags,
        operationId: "withdrawWaitingOrder",
        summary: "Give up an order that waits; nothing was changed",
        params: IdParams,
        response: { 200: Done },
      },
    },
    async ({ owner, params }) => {
      if (!(await withdrawWaiting(app.prisma, owner.id, params.id))) throw notFound();
      return { success: true as const };
    },
  );

  async function find(owner: FastifyRequest["owner"], id: string): Promise<Found> {
    const row = await findWaiting(app.prisma, id);
    const found = row && (await readable(owner, row));
    if (!found) throw notFound();
    return found;
  }

  async function readable(
    owner: FastifyRequest["owner"],
    row: WaitingRow,
  ): Promise<Found | undefined> {
    const team = await app.prisma.owner.findUnique({
      where: { id: row.teamId },
      select: { address: true },
    });
    if (!team) return undefined;
    const address = team.address as Address;
    const list = await app.ownerSignatures.teams.listInForce({ address, chainId: TEAMS_CHAIN });
    if (!list) return undefined;
    const mayRead = owner.member
      ? row.teamId === owner.id
      : owner.second === null && isInvited(list, row, owner.address);
    return mayRead ? { row, team: address, list } : undefined;
  }

  async function sign(
    owner: FastifyRequest["owner"],
    { row, list }: Found,
    signature: Hex,
  ): Promise<WaitingRow> {
    const person = personOf(owner);
    const signer = signerAs(list, row, person.address);
    if (signer?.chainId !== person.chainId)
      throw new ApiError("role_not_allowed", {
        detail: "This order is not for your role in the team: your signature would not count.",
      });
    const hash = digestOf(row);
    const verdict = await app.ownerSignatures.isSigned(person, { hash, signature });
    if (verdict === "unavailable") throw new ApiError("chain_unavailable");
    if (verdict === "invalid") throw orderNotSigned("You did not sign this order.");
    const added = await app.prisma.$transaction(async (tx) => {
      const { ownerId: id, address } = person;
      await assertCountsOn(tx, { id }, { digest: hash, signature, isAgain: true });
      return addSignature(tx, row, { address, signature });
    });
    if (!added) throw notFound();
    return added;
  }
};
export default waitingRoutes;

const personOf = ({ id: ownerId, address, chainId, member }: FastifyRequest["owner"]) =>
  member ?? { ownerId, address, chainId };

function view(owner: FastifyRequest["owner"], { row, team, list }: Found) {
  const progress = progressWith(list, row);
  const { address } = personOf(owner);
  const checksummed = (addresses: readonly string[]) => addresses.map((one) => getAddress(one));
  return {
    id: row.id,
    team: { owner: getAddress(team), name: list.name },
    kind: row.kind,
    by: getAddress(row.member),
    order: row.document,
    typedData: typedDataFor(row),
    collected: checksummed(progress.collected),
    needed: progress.needed,
    missing: checksummed(progress.missing),
    isComplete: progress.isEnough,
    canSign: signerAs(list, row, address) !== undefined && !progress.collected.includes(address),
    request: requestOf(row),
    createdAt: row.createdAt.toISOString(),
    expiresAt: row.expiresAt.toISOString(),
  };
}

const notFound = (): ApiError =>
  new ApiError("not_found", {
    detail: "No such order waits: it was carried out, withdrawn or ended.",
  });

/** Orders that wait for signatures. Members of the team read and sign them; so do people that a new list of members names. */
import type { FastifyRequest } from "fastify";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress, type Address, type Hex } from "viem";
import { isOwnSignature, TEAMS_CHAIN, type MemberList } from "../../core/teams.ts";
import { ApiError } from "../../errors.ts";
import { readPage, toPage } from "../../core/paging.ts";
import { IdParams, PageQuery } from "../../schemas/common.ts";
import { Done } from "../../schemas/owners.ts";
import { SignWaitingBody, WaitingOrder, WaitingOrders } from "../../schemas/teams.ts";
import { acceptEmptyJson } from "../http/index.ts";
import { assertCountsOn, orderNotSigned } from "../orders/orders.ts";
import {
  addSignature,
  digestOf,
  findWaiting,
  invitationsOf,
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
        querystring: PageQuery,
        response: { 200: WaitingOrders },
      },
    },
    async ({ owner, query }) => {
      const page = readPage(query);
      const rows = owner.member
        ? await listWaiting(app.prisma, owner.id, page)
        : await invitationsOf(app.prisma, owner.address);
      const readable = await reader(owner);
      const found = await Promise.all(rows.map(readable));
      const { nextCursor } = owner.member ? toPage(rows, page.limit, () => null) : END;
      const shown = found.slice(0, owner.member ? page.limit : rows.length);
      return { items: shown.flatMap((one) => (one ? [view(owner, one)] : [])), nextCursor };
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
        errors: [
          "invalid_signature",
          "chain_unavailable",
          "account_screened",
          "screening_unavailable",
        ],
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
        summary:
          "Give up an order that you sent and that waits; its signatures cannot be used any more",
        params: IdParams,
        response: { 200: Done },
      },
    },
    async ({ owner, params }) => {
      const { row } = await find(owner, params.id);
      const member = owner.member?.address;
      if (member !== row.member)
        throw new ApiError("role_not_allowed", {
          detail:
            "Only the member who sent it gives it up. It does nothing without your signature.",
        });
      if (!(await withdrawWaiting(app.prisma, { teamId: owner.id, member }, params.id)))
        throw notFound();
      return { success: true as const };
    },
  );

  async function find(owner: FastifyRequest["owner"], id: string): Promise<Found> {
    const row = await findWaiting(app.prisma, id);
    const found = row && (await (await reader(owner))(row));
    if (!found) throw notFound();
    return found;
  }

  /** What the caller may read: orders of the team for which it acts, and for the own account those that it can sign. */
  async function reader(owner: FastifyRequest["owner"]) {
    // Many rows are of one team, whose list is read once.
    const lists = new Map<Address, Promise<MemberList | undefined>>();
    const listOf = (address: Address) => {
      const known = lists.get(address);
      const list =
        known ?? app.ownerSignatures.teams.listInForce({ address, chainId: TEAMS_CHAIN });
      lists.set(address, list);
      return list;
    };
    return async (row: WaitingRow): Promise<Found | undefined> => {
      if (owner.member && row.teamId !== owner.id) return undefined;
      const list = await listOf(row.team);
      if (!list) return undefined;
      const mayRead =
        owner.member !== null ||
        (owner.second === null && signerAs(list, row, owner.address)?.chainId === owner.chainId);
      return mayRead ? { row, list } : undefined;
    };
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
    await app.ownerOrders.assertMaySign(person, row.kind);
    const hash = digestOf(row);
    const verdict = await app.ownerSignatures.isSigned(person, { hash, signature });
    if (verdict === "unavailable") throw new ApiError("chain_unavailable");
    if (verdict === "invalid" || !isOwnSignature(signature))
      throw orderNotSigned("You did not sign this order.");
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

function view(owner: FastifyRequest["owner"], { row, list }: Found) {
  const progress = progressWith(list, row);
  const { address } = personOf(owner);
  const checksummed = (addresses: readonly string[]) => addresses.map((one) => getAddress(one));
  return {
    id: row.id,
    team: { owner: getAddress(row.team), name: list.name },
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

const END = { nextCursor: null };

const notFound = (): ApiError =>
  new ApiError("not_found", {
    detail: "No such order waits: it was carried out, withdrawn or ended.",
  });

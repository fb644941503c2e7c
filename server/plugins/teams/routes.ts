import type { FastifyRequest } from "fastify";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress, type Address } from "viem";
import { ApiError } from "../../errors.ts";
import { SignedIn } from "../../schemas/owners.ts";
import {
  ActForBody,
  MembersBody,
  membersRefusals,
  NewTeam,
  NewTeamBody,
  Team,
} from "../../schemas/teams.ts";
import { readAddress } from "../agents/rules.ts";
import { actFor } from "./act-for.ts";
import { changeMembers, listInForce, makeTeam, viewTeam, type TeamCall } from "./members.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));
  const tags = ["owners: teams"];
  const callOf = ({ owner }: Pick<FastifyRequest, "owner">): TeamCall => ({
    prisma: app.prisma,
    orders: app.ownerOrders,
    signatures: app.ownerSignatures,
    owner,
    // An owner's orders that concern no agent are signed for the first network.
    chainId: app.config.networks[0].chainId,
  });
  const view = async (request: Pick<FastifyRequest, "owner">) =>
    viewTeam(request.owner.address, await listInForce(callOf(request)));

  app.post(
    "/api/teams",
    {
      config: { auth: "owner", team: false },
      schema: {
        tags,
        operationId: "createTeam",
        summary: "Make a team with yourself as its only admin; you sign its first list of members",
        body: NewTeamBody,
        response: { 201: NewTeam, ...membersRefusals },
      },
    },
    async (request, reply) => {
      const owner = getAddress(await makeTeam(callOf(request), request.body));
      return reply.code(201).send({ success: true as const, owner });
    },
  );

  app.get(
    "/api/team",
    {
      config: { auth: "owner", errors: ["conflict", "policy_not_signed"] },
      schema: {
        tags,
        operationId: "getTeam",
        summary: "The team that you act for: its members, and how many must sign",
        response: { 200: Team },
      },
    },
    async (request) => view(request),
  );

  app.put(
    "/api/team/members",
    {
      config: { auth: "owner", errors: ["not_found", "invalid_amount", "invalid_address"] },
      schema: {
        tags,
        operationId: "changeMembers",
        summary:
          "Replace the members of the team: signed by its admins, and by everybody who may decide with it for the first time",
        body: MembersBody,
        response: { 200: Team, ...membersRefusals },
      },
    },
    async (request) => {
      await changeMembers(callOf(request), request.body);
      return view(request);
    },
  );

  app.post(
    "/api/auth/act-for",
    {
      config: { auth: "owner", team: "viewer", errors: ["not_found", "invalid_address"] },
      schema: {
        tags: ["owners: session"],
        operationId: "actFor",
        summary:
          "Act for a team of yours, or for your own account again; replaces the session cookie",
        body: ActForBody,
        response: { 200: SignedIn },
      },
    },
    async (request, reply) => {
      if (request.owner.second) throw new ApiError("second_wallet_only_tightens");
      const { owner } = request.body;
      const team: Address | null = owner === null ? null : readAddress(owner, "body.owner");
      const { address, token } = await actFor(request, team);
      app.sessionCookie.set(reply, token);
      return { address: getAddress(address) };
    },
  );
};
export default routes;

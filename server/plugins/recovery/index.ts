/** A recovery (second) wallet for an owner, and the transfer of all agents to it. */
import fp from "fastify-plugin";
import type { FastifyRequest } from "fastify";
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress } from "viem";
import {
  MoveBody,
  Moved,
  moveRefusals,
  Recovery,
  SecondBody,
  secondRefusals,
} from "../../schemas/recovery.ts";
import { secondWalletOf } from "../owners/store.ts";
import { moveOwner } from "./move.ts";
import { nameSecond } from "./second.ts";

export default fp(
  async (app) => {
    await app.register(routes);
  },
  { name: "recovery" },
);

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const tags = ["owners: recovery"];
  // An owner's orders that concern no agent are signed for the first network.
  const chainId = app.config.networks[0].chainId;
  const callOf = ({ owner, id: requestId }: Pick<FastifyRequest, "owner" | "id">) => ({
    prisma: app.prisma,
    orders: app.ownerOrders,
    owner,
    chainId,
    requestId,
    isSigned: (
      wallet: { address: `0x${string}`; chainId: number },
      signed: { hash: `0x${string}`; signature: `0x${string}` },
    ) => app.ownerSignatures.isSigned(wallet, signed),
  });

  app.addHook("onSend", async (_request, reply) => void reply.header("cache-control", "no-store"));

  app.get(
    "/api/recovery",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "getRecovery",
        summary: "This owner's recovery wallet",
        response: { 200: Recovery },
      },
    },
    async ({ owner }) => viewRecovery(owner),
  );

  app.put(
    "/api/recovery/second",
    {
      config: { auth: "owner", errors: ["not_found"] },
      schema: {
        tags,
        operationId: "nameSecondWallet",
        summary:
          "Set or remove the recovery wallet; the owner's wallet signs the change, and so does the wallet that is named",
        body: SecondBody,
        response: { 200: Recovery, ...secondRefusals },
      },
    },
    async (request) => {
      await nameSecond(callOf(request), request.body);
      return viewRecovery(request.owner);
    },
  );

  app.post(
    "/api/recovery/move",
    {
      config: { auth: "owner", second: true, errors: ["not_found"] },
      schema: {
        tags,
        operationId: "moveOwner",
        summary: "Make the recovery wallet the owner of all agents; both wallets sign the change",
        body: MoveBody,
        response: { 200: Moved, ...moveRefusals },
      },
    },
    async (request) => {
      const { custody } = app;
      const moved = await moveOwner({ ...callOf(request), custody }, request.body);
      return {
        success: true as const,
        owner: getAddress(moved.address),
        agents: moved.agents,
        note: "Every agent is paused. Resume each agent with the new wallet: it can pay again when the new owner has signed its rules. The agents' money did not move.",
      };
    },
  );

  async function viewRecovery({ id, address }: FastifyRequest["owner"]) {
    const second = await secondWalletOf(app.prisma, id);
    return {
      owner: getAddress(address),
      second: second
        ? {
            address: getAddress(second.address),
            chainId: second.chainId,
            since: second.since.toISOString(),
          }
        : null,
    };
  }
};

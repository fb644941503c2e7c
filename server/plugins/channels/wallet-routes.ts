/** What an owner sees of an agent's payment channels, and how they are closed. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { getAddress } from "viem";
import { formatAtomic } from "../../core/money.ts";
import { readPage, toPage } from "../../core/paging.ts";
import { ApiError } from "../../errors.ts";
import {
  ChannelParams,
  ClosingAnswer,
  AgentChannelPage,
  type AgentChannel,
  type PaymentChannelTotal,
} from "../../schemas/channels.ts";
import { IdParams, PageQuery } from "../../schemas/common.ts";
import { type ChannelMoney, readChannelMoney } from "../agents/channel-money.ts";
import { ownAgent } from "../agents/store.ts";
import { heldIn, listChannels, type ChannelRow } from "./wallet-store.ts";

const routes: FastifyPluginAsyncTypebox = async (app) => {
  const tags = ["owners: payments"];

  const onWire = (row: ChannelRow): AgentChannel => {
    const balance = row.depositedAtomic - row.returnedAtomic;
    return {
      id: row.id,
      agentId: row.agentId,
      network: app.networkOf(Number(row.chainId)),
      payTo: getAddress(row.receiver),
      url: row.url,
      status: row.status,
      reason: row.reason as AgentChannel["reason"],
      withdrawDelaySeconds: row.withdrawDelay,
      balance: formatAtomic(row.status === "closed" ? 0n : balance),
      spent: formatAtomic(row.ceilingAtomic),
      charged: formatAtomic(row.chargedAtomic),
      held: formatAtomic(heldIn(row)),
      returned: formatAtomic(row.returnedAtomic),
      returnsAt: row.status === "closing" ? (row.returnsAt?.toISOString() ?? null) : null,
      createdAt: new Date(Number(row.createdAtMicros / 1_000n)).toISOString(),
      lastUsedAt: row.usedAt.toISOString(),
      closedAt: row.closedAt?.toISOString() ?? null,
    };
  };

  app.get(
    "/api/agents/:id/channels",
    {
      config: { auth: "owner", second: true },
      schema: {
        tags,
        operationId: "listChannels",
        summary: "The agent's payment channels, and what is held in them",
        params: IdParams,
        querystring: PageQuery,
        response: { 200: AgentChannelPage },
      },
    },
    async ({ owner, params, query }) => {
      const { id: agentId } = await ownAgent(app.prisma, owner, params.id);
      const page = readPage(query);
      const [rows, money] = await Promise.all([
        listChannels(app.prisma, { agentId, page }),
        readChannelMoney(app.prisma, agentId),
      ]);
      return { ...toPage(rows, page.limit, onWire), total: totalOf(money) };
    },
  );

  // Closing only takes away, so the session is enough.
  app.post(
    "/api/agents/:id/channels/close",
    {
      config: { auth: "owner", second: true },
      schema: {
        tags,
        operationId: "closeChannels",
        summary: "Close all payment channels of the agent: what is left in them comes back",
        params: IdParams,
        response: { 200: ClosingAnswer },
      },
    },
    async ({ owner, params }) => {
      const { id: agentId } = await ownAgent(app.prisma, owner, params.id);
      return { closing: await app.closeChannels({ agentId }) };
    },
  );

  app.post(
    "/api/agents/:id/channels/:channelId/close",
    {
      config: { auth: "owner", second: true },
      schema: {
        tags,
        operationId: "closeChannel",
        summary: "Close one payment channel: what is left in it comes back",
        params: ChannelParams,
        response: { 200: ClosingAnswer },
      },
    },
    async ({ owner, params }) => {
      const { id: agentId } = await ownAgent(app.prisma, owner, params.id);
      const { channelId } = params;
      const known = await app.prisma.channel.count({ where: { agentId, id: channelId } });
      if (known === 0) throw new ApiError("not_found");
      return { closing: await app.closeChannels({ agentId, channelId }) };
    },
  );
};

function totalOf(money: readonly ChannelMoney[]): PaymentChannelTotal {
  const sum = (read: (one: ChannelMoney) => bigint) =>
    formatAtomic(money.reduce((total, one) => total + read(one), 0n));
  const count = (read: (one: ChannelMoney) => number) =>
    money.reduce((total, one) => total + read(one), 0);
  return {
    channels: count(({ channels }) => channels),
    open: count(({ open }) => open),
    balance: sum(({ balanceAtomic }) => balanceAtomic),
    held: sum(({ heldAtomic }) => heldAtomic),
    longestDelaySeconds: Math.max(0, ...money.map((one) => one.longestDelaySeconds)),
  };
}

export default routes;

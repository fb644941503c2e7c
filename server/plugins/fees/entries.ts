/** The entries of a payee's account in all cells. Each is in the cell that settled its payment. */
import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyInstance } from "fastify";
import { Type, type Static } from "typebox";
import type { Address } from "viem";
import { encodeCursor, readPage } from "../../core/paging.ts";
import { readKeyset, readMergeable } from "../../infra/db/prisma.ts";
import { PayeeWire } from "../../schemas/cells.ts";
import { FeeEntry } from "../../schemas/fees.ts";
import { assertForwarded } from "../../core/cells.ts";
import { CHUNK, collect, type ListOfCells } from "../cells/lists.ts";
import { listFeeEntries } from "./store.ts";
import { presentEntry } from "./view.ts";

const PATH = "/api/cells/merchant/fees";
const Entries = Type.Object({ items: Type.Array(FeeEntry) });

export function feeList(
  { cells, prisma }: Pick<FastifyInstance, "cells" | "prisma">,
  { address, chainId }: { address: Address; chainId: number },
): ListOfCells<FeeEntry> {
  const payee = { address, chainId };
  const order = cells ? readMergeable : readKeyset;
  return {
    here: async (page) => (await listFeeEntries(prisma, payee, page, order)).map(presentEntry),
    elsewhere:
      cells &&
      (async ({ limit, after }, isAsked) => {
        const sent = { payee, limit, ...(after && { cursor: encodeCursor(after) }) };
        const asked = await cells.askOthers<Static<typeof Entries>>(PATH, sent, isAsked);
        return collect(asked, ({ items }) => items);
      }),
  };
}

/** Registered only where there are several cells. */
export const cellRoutes: FastifyPluginAsyncTypebox = async (app) => {
  app.post(
    PATH,
    {
      config: { auth: "cell" },
      schema: {
        tags: ["cells"],
        operationId: "listFeesForCell",
        summary: "Fees and payments of fees of an account, that were settled here",
        body: Type.Object({
          payee: PayeeWire,
          limit: Type.Integer({ minimum: 1, maximum: CHUNK }),
          cursor: Type.Optional(Type.String()),
        }),
        response: { 200: Entries },
      },
    },
    async ({ forward, body }) => {
      assertForwarded(forward, body);
      const { payee, limit, cursor } = body;
      const { after } = readPage({ ...(cursor !== undefined && { cursor }) });
      const rows = await listFeeEntries(app.prisma, payee, { limit, after }, readMergeable);
      return { items: rows.map(presentEntry) };
    },
  );
};

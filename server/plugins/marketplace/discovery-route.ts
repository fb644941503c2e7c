import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import { toDiscoveryItem } from "./wire.ts";
import {
  DiscoveryPage,
  DiscoveryQuery,
  DiscoverySearchPage,
  DiscoverySearchQuery,
} from "../../schemas/listings.ts";

const DEFAULT_LIMIT = 100;
const tags = ["facilitator"];

/** The marketplace in the protocol's Bazaar shape: stock clients (`withBazaar`) read it. */
const routes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/x402/discovery/resources",
    {
      config: { auth: "public" },
      schema: {
        tags,
        summary: "Paid resources known here, in the protocol's Bazaar shape",
        querystring: DiscoveryQuery,
        response: { 200: DiscoveryPage },
      },
    },
    async (request) => {
      const { limit, offset, ...filter } = request.query;
      const page = { limit: Number(limit ?? DEFAULT_LIMIT), offset: Number(offset ?? 0) };
      const { rows, total } = await app.listings.catalogued({ ...filter, ...page });
      return {
        x402Version: 2 as const,
        items: rows.map(toDiscoveryItem),
        pagination: { ...page, total },
      };
    },
  );

  app.get(
    "/api/x402/discovery/search",
    {
      config: { auth: "public" },
      schema: {
        tags,
        summary: "Search the paid resources known here",
        querystring: DiscoverySearchQuery,
        response: { 200: DiscoverySearchPage },
      },
    },
    async (request) => {
      const { limit: limitText, cursor, ...filter } = request.query;
      const limit = Number(limitText ?? DEFAULT_LIMIT);
      const offset = Number(cursor ?? 0);
      const { rows, total } = await app.listings.catalogued({ ...filter, limit, offset });
      const next = offset + rows.length;
      const hasMore = next < total && rows.length > 0;
      return {
        x402Version: 2 as const,
        resources: rows.map(toDiscoveryItem),
        partialResults: hasMore,
        pagination: { limit: rows.length, cursor: hasMore ? String(next) : null },
      };
    },
  );
};

export default routes;

import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyReply, FastifyRequest } from "fastify";
import { getAddress } from "viem";
import { acceptEmptyJson } from "../http/index.ts";
import { shortListing, toListing, toDiscoveryItem } from "./wire.ts";
import { formatAtomic } from "../../core/money.ts";
import { ApiError } from "../../errors.ts";
import { isMaximum } from "../../schemes/index.ts";
import { IdParams } from "../../schemas/common.ts";
import {
  Deleted,
  Listing,
  ListingPage,
  SuggestedListings,
  ListingPatch,
  ListingQuery,
  NewListing,
  ProbeRequest,
  ProbeResult,
  DiscoveryPage,
  DiscoveryQuery,
  DiscoverySearchPage,
  DiscoverySearchQuery,
} from "../../schemas/listings.ts";

const tags = ["marketplace"];
/** The page size of the Bazaar format, if the client names none. */
const DEFAULT_LIMIT = 100;

/** The marketplace in our own API format. */
export const listingRoutes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);

  /** Reads are public; a signed-in owner also sees which listings are its own. */
  async function viewerOf(request: FastifyRequest, reply: FastifyReply) {
    if (app.sessionCookie.read(request) === undefined) return undefined;
    try {
      await app.authenticators.get("owner")?.(request, reply);
      return request.owner.id;
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return undefined;
      throw error;
    }
  }

  app.get(
    "/api/listings",
    {
      config: { auth: "public", errors: ["session_required", "invalid_amount"] },
      schema: {
        tags,
        operationId: "listListings",
        summary: "Paid endpoints: the best match first, without `search` the newest",
        querystring: ListingQuery,
        response: { 200: ListingPage },
      },
    },
    async (request, reply) => {
      const viewer = await viewerOf(request, reply);
      if (request.query.mine !== undefined && viewer === undefined)
        throw new ApiError("session_required", {
          headers: { "www-authenticate": 'SIWE realm="purser"' },
        });
      const page = await app.listings.list(request.query, viewer);
      const items = page.items.map((row) => toListing(row, viewer));
      return { ...page, items: request.query.detail === "short" ? items.map(shortListing) : items };
    },
  );

  app.get(
    "/api/listings/suggested",
    {
      config: { auth: "public" },
      schema: {
        tags,
        operationId: "listSuggestedListings",
        summary: "Paid endpoints that respond and were paid through this service, most used first",
        description: "At most 24. A payment proves that an endpoint sells, not that it is good.",
        response: { 200: SuggestedListings },
      },
    },
    async (request, reply) => {
      const viewer = await viewerOf(request, reply);
      const rows = await app.listings.suggested();
      return { items: rows.map((row) => toListing(row, viewer)) };
    },
  );

  app.get(
    "/api/listings/:id",
    {
      config: { auth: "public" },
      schema: {
        tags,
        operationId: "getListing",
        summary: "One listing",
        params: IdParams,
        response: { 200: Listing },
      },
    },
    async (request, reply) => {
      const viewer = await viewerOf(request, reply);
      return toListing(await app.listings.get(request.params.id, viewer), viewer);
    },
  );

  app.post(
    "/api/listings/probe",
    {
      config: { auth: "owner", limit: "probe", errors: ["proof_of_control_required"] },
      schema: {
        tags,
        operationId: "probeListing",
        summary: "The payment terms in a URL's current 402 response; stores nothing",
        description:
          'The request has no body. Purser sends methods other than GET only to hosts that name you as an owner at `/.well-known/purser.json`: `{"owners":["0x..."]}`.',
        body: ProbeRequest,
        response: { 200: ProbeResult },
      },
    },
    async (request) => {
      const { url, method, terms } = await app.listings.probe(request.owner, request.body);
      return {
        url,
        method,
        price: formatAtomic(terms.priceAtomic),
        ...(isMaximum(terms.requirement) && { maximum: true as const }),
        payTo: getAddress(terms.payTo),
        network: terms.network,
        asset: getAddress(terms.asset),
        x402Version: terms.x402Version,
        thirdParty: {
          untrusted: true as const,
          description: terms.description === "" ? null : terms.description,
          mimeType: terms.mimeType,
          sample: terms.sample,
        },
      };
    },
  );

  app.post(
    "/api/listings",
    {
      config: {
        auth: "owner",
        limit: "probe",
        errors: ["proof_of_control_required", "conflict", "listing_quota_exceeded"],
      },
      schema: {
        tags,
        operationId: "createListing",
        summary: "List a paid endpoint: Purser checks it now and pins its terms",
        body: NewListing,
        response: { 201: Listing },
      },
    },
    async (request, reply) => {
      const row = await app.listings.create(request.owner, request.body);
      return reply.code(201).send(toListing(row, request.owner.id));
    },
  );

  app.patch(
    "/api/listings/:id",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "updateListing",
        summary: "Change, pause or resume one of your listings",
        params: IdParams,
        body: ListingPatch,
        response: { 200: Listing },
      },
    },
    async (request) => {
      const row = await app.listings.change(request.owner.id, request.params.id, request.body);
      return toListing(row, request.owner.id);
    },
  );

  app.delete(
    "/api/listings/:id",
    {
      config: { auth: "owner" },
      schema: {
        tags,
        operationId: "deleteListing",
        summary: "Remove one of your listings",
        params: IdParams,
        response: { 200: Deleted },
      },
    },
    async (request) => {
      await app.listings.remove(request.owner.id, request.params.id);
      return { success: true as const };
    },
  );
};

/** The marketplace in the protocol's Bazaar format, for standard clients (`withBazaar`). */
export const discoveryRoutes: FastifyPluginAsyncTypebox = async (app) => {
  app.get(
    "/api/x402/discovery/resources",
    {
      config: { auth: "public" },
      schema: {
        tags: ["facilitator"],
        operationId: "listDiscoveryResources",
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
        tags: ["facilitator"],
        operationId: "searchDiscoveryResources",
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

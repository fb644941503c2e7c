import type { FastifyPluginAsyncTypebox } from "@fastify/type-provider-typebox";
import type { FastifyReply, FastifyRequest } from "fastify";
import { getAddress } from "viem";
import { toListing } from "./wire.ts";
import { formatAtomic } from "../../core/money.ts";
import { ApiError } from "../../errors.ts";
import { IdParams } from "../../schemas/common.ts";
import {
  Deleted,
  Listing,
  ListingPage,
  ListingPatch,
  ListingQuery,
  NewListing,
  ProbeRequest,
  ProbeResult,
} from "../../schemas/listings.ts";
import { acceptEmptyJson } from "../http/empty-json.ts";

const tags = ["marketplace"];
/** Each of these makes us call an address its caller chose. */
const rateLimit = { max: 120, timeWindow: "1 minute" };

const routes: FastifyPluginAsyncTypebox = async (app) => {
  acceptEmptyJson(app);
  /** Reads are public; who is signed in also sees which listings are theirs. */
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
      config: { auth: "public" },
      schema: {
        tags,
        summary: "Paid endpoints, newest first",
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
      return { ...page, items: page.items.map((row) => toListing(row, viewer)) };
    },
  );

  app.get(
    "/api/listings/:id",
    {
      config: { auth: "public" },
      schema: { tags, summary: "One listing", params: IdParams, response: { 200: Listing } },
    },
    async (request, reply) => {
      const viewer = await viewerOf(request, reply);
      return toListing(await app.listings.get(request.params.id, viewer), viewer);
    },
  );

  app.post(
    "/api/listings/probe",
    {
      config: { auth: "owner", rateLimit },
      schema: {
        tags,
        summary: "What a URL's live 402 asks for; stores nothing",
        body: ProbeRequest,
        response: { 200: ProbeResult },
      },
    },
    async (request) => {
      const { url, method, terms } = await app.listings.probe(request.body);
      return {
        url,
        method,
        price: formatAtomic(terms.priceAtomic),
        payTo: getAddress(terms.payTo),
        network: terms.network,
        asset: getAddress(terms.asset),
        x402Version: terms.x402Version,
        description: terms.description,
        mimeType: terms.mimeType,
        sample: terms.sample,
      };
    },
  );

  app.post(
    "/api/listings",
    {
      config: { auth: "owner", rateLimit },
      schema: {
        tags,
        summary: "List a paid endpoint: it is probed now, and its terms are pinned",
        body: NewListing,
        response: { 201: Listing },
      },
    },
    async (request, reply) => {
      const row = await app.listings.create(request.owner.id, request.body);
      return reply.code(201).send(toListing(row, request.owner.id));
    },
  );

  app.patch(
    "/api/listings/:id",
    {
      config: { auth: "owner" },
      schema: {
        tags,
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

export default routes;

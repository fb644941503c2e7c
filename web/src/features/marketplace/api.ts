import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import type { FetchAnswer, Listing, ProbeResult } from "../../lib/wire.ts";

interface ListingFilter {
  search?: string;
  category?: string;
  network?: string;
  maxPrice?: string;
  mine?: boolean;
}

/** Reduces the typed text to the characters that the API accepts for a category. */
export const toCategory = (text: string): string =>
  text.toLowerCase().replaceAll(/[^a-z0-9-]/g, "");

export const listingsQuery = ({ search, category, network, maxPrice, mine }: ListingFilter) =>
  pagedQuery<Listing>(
    keys.listings({ search, category, network, maxPrice, mine }),
    "/api/listings",
    {
      search,
      category,
      network,
      maxPrice,
      mine: mine === true ? "true" : undefined,
      limit: 24,
    },
  );

export const listingQuery = (id: string) =>
  queryOptions({
    queryKey: keys.listing(id),
    queryFn: ({ signal }) => api.get<Listing>(`/api/listings/${id}`, { signal }),
  });

interface ListingDraft {
  url: string;
  name: string;
  description: string;
  category?: string;
  method: string;
  maxPrice?: string;
}

export const probeListing = (url: string, method: string): Promise<ProbeResult> =>
  api.post("/api/listings/probe", { url, method });

export const createListing = (draft: ListingDraft): Promise<Listing> =>
  api.post("/api/listings", draft);

export const updateListing = (
  id: string,
  changes: Partial<Pick<ListingDraft, "name" | "description" | "category" | "maxPrice">> & {
    status?: "active" | "paused";
  },
): Promise<Listing> => api.patch(`/api/listings/${id}`, changes);

export const deleteListing = (id: string): Promise<unknown> => api.delete(`/api/listings/${id}`);

interface Trial {
  listingId: string;
  dryRun?: boolean;
  maxAmount?: string;
}

/** The same as the agent's own x402-fetch with the same guardrails, requested by its owner. */
export const tryListing = (
  agentId: string,
  trial: Trial,
  idempotencyKey: string,
): Promise<FetchAnswer> =>
  api.post(`/api/agents/${agentId}/try`, { ...trial, detail: "full" }, { idempotencyKey });

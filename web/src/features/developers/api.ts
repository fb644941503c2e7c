import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { CatalogueEntry } from "../../lib/wire.ts";

export const catalogueQuery = queryOptions({
  queryKey: keys.catalogue,
  queryFn: async ({ signal }) =>
    (await api.get<{ items: CatalogueEntry[] }>("/api/errors", { signal })).items,
  staleTime: Number.POSITIVE_INFINITY,
});

import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { FirstSteps } from "../../lib/wire.ts";

export const firstStepsQuery = queryOptions({
  queryKey: keys.firstSteps,
  queryFn: ({ signal }) => api.get<FirstSteps>("/api/owner/first-steps", { signal }),
  // They do not open again, so an owner who has paid and has a way back asks once.
  enabled: ({ state: { data } }) => data?.isOpen !== false || !data.steps.recovery,
});

export const hideFirstSteps = (): Promise<FirstSteps> => api.post("/api/owner/first-steps/hide");

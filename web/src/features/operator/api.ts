import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import type {
  OperatorAccounts,
  OperatorChecks,
  OperatorConfiguration,
  OperatorDeliveries,
  OperatorDifferences,
  OperatorDone,
  OperatorEntry,
  OperatorMerchants,
  OperatorOverview,
} from "../../lib/wire.ts";

const FRESH_MS = 5_000;
const DETAILS_MS = 30_000;

const part = <T>(name: string, refetchInterval: number) =>
  queryOptions({
    queryKey: keys.operator(name),
    queryFn: ({ signal }) => api.get<T>(`/api/operators/${name}`, { signal }),
    refetchInterval,
  });

export const overviewQuery = part<OperatorOverview>("overview", FRESH_MS);
export const differencesQuery = part<OperatorDifferences>("differences", FRESH_MS);
export const accountsQuery = part<OperatorAccounts>("accounts", DETAILS_MS);
export const merchantsQuery = part<OperatorMerchants>("merchants", DETAILS_MS);
export const deliveriesQuery = part<OperatorDeliveries>("deliveries", DETAILS_MS);
export const configurationQuery = part<OperatorConfiguration>("configuration", 0);
export const recordQuery = pagedQuery<OperatorEntry>(
  keys.operator("record"),
  "/api/operators/record",
);

/** A new one for each dialog, so that a second press of its button changes nothing more. */
export const newConfirmation = (): string => crypto.randomUUID();

interface Confirmed {
  network: string;
  why: string;
  confirmationId: string;
}

export const closeDifference = (body: Confirmed & { kind: string; key: string }) =>
  api.post<OperatorDone>("/api/operators/differences/close", body);

export const readAgain = (body: Confirmed & { fromBlock: string }) =>
  api.post<OperatorDone>("/api/operators/read-again", body);

export const runChecks = () => api.post<OperatorChecks>("/api/operators/checks", {});

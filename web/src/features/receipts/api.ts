import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { SignedMerchantReceipt } from "../../lib/wire.ts";

/** A reorganisation of the chain can take back what an open page says. */
const READ_AGAIN_MS = 5_000;

export const receiptQuery = (id: string) =>
  queryOptions({
    queryKey: keys.receipt(id),
    queryFn: ({ signal }) =>
      api.get<SignedMerchantReceipt>(`/api/receipts/${encodeURIComponent(id)}`, { signal }),
    refetchInterval: READ_AGAIN_MS,
  });

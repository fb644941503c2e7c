import { queryOptions } from "@tanstack/react-query";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { SignedMerchantReceipt } from "../../lib/wire.ts";

export const receiptQuery = (id: string) =>
  queryOptions({
    queryKey: keys.receipt(id),
    queryFn: ({ signal }) =>
      api.get<SignedMerchantReceipt>(`/api/receipts/${encodeURIComponent(id)}`, { signal }),
  });

import { type InfiniteData, useInfiniteQuery } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";
import { onLiveEvent } from "../../lib/live.ts";
import { queryClient } from "../../lib/query-client.ts";
import type { Page, Payment } from "../../lib/wire.ts";
import { type PaymentFilter, paymentQuery, paymentsQuery } from "./api.ts";
import { fits } from "./filter.ts";

type Pages = InfiniteData<Page<Payment>>;

/** Inserts a changed payment: in place of its older version, or on top when it is new. */
function merge(pages: Pages, payment: Payment, filter: PaymentFilter): Pages {
  const isShown = fits(payment, filter);
  let isKnown = false;
  const next = pages.pages.map((page) => ({
    ...page,
    items: page.items.flatMap((item) => {
      if (item.id !== payment.id) return [item];
      isKnown = true;
      return isShown ? [payment] : [];
    }),
  }));
  const [first, ...rest] = next;
  if (isKnown || !isShown || !first) return { ...pages, pages: next };
  return { ...pages, pages: [{ ...first, items: [payment, ...first.items] }, ...rest] };
}

/** An agent's payments, newest first, with live updates. Rows that moved between pages appear once. */
export function usePayments(agentId: string, filter: PaymentFilter) {
  const options = paymentsQuery(agentId, filter);
  const query = useInfiniteQuery(options);
  const key = JSON.stringify(options.queryKey);

  useEffect(
    () =>
      onLiveEvent((event) => {
        if (event.type !== "payment" || event.payment.agentId !== agentId) return;
        const { payment } = event;
        queryClient.setQueryData(paymentQuery(agentId, payment.id).queryKey, payment);
        queryClient.setQueryData(paymentsQuery(agentId, filter).queryKey, (pages) =>
          pages === undefined ? pages : merge(pages, payment, filter),
        );
      }),
    [agentId, key],
  );

  const data = useMemo(() => {
    const seen = new Set<string>();
    return query.data?.filter(({ id }) => {
      const isNew = !seen.has(id);
      seen.add(id);
      return isNew;
    });
  }, [query.data]);
  return { ...query, data };
}

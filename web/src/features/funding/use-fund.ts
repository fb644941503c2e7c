import { useMutation, useQuery } from "@tanstack/react-query";
import { atomic, formatUsdc, parseUsdc } from "../../lib/money.ts";
import { invalidate } from "../../lib/query-keys.ts";
import {
  fund,
  type FundRequest,
  type FundResult,
  ownBalanceQuery,
  type PendingFund,
  settle,
} from "./fund.ts";

/** One transfer to the agent, and asking again for the one whose outcome is not known yet. */
export function useFund(request: Omit<FundRequest, "amountAtomic">) {
  const { data } = useQuery(ownBalanceQuery(request.network.id));
  const balance = data?.balance ?? null;
  const pay = useMutation<FundResult, unknown, { amountAtomic: bigint } | { again: PendingFund }>({
    mutationFn: (what) =>
      "again" in what ? settle(what.again.body) : fund({ ...request, ...what }),
    onSuccess: invalidate.afterPayment,
  });
  /** The sentence that says what is wrong with the amount; none, and it is on its way. */
  const send = (amount: string): string | undefined => {
    const amountAtomic = parseUsdc(amount);
    if (amountAtomic === undefined || amountAtomic === 0n)
      return "Enter an amount such as 5 or 0.25, with at most 6 decimals.";
    if (balance !== null && amountAtomic > atomic(balance))
      return `Your wallet holds ${formatUsdc(balance)} USDC.`;
    pay.mutate({ amountAtomic });
    return undefined;
  };
  return { balance, pay, send };
}

import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { atomic, formatUsdc, parseUsdc } from "../../lib/money.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { TypedData } from "../../lib/wire.ts";
import {
  fund,
  type FundRequest,
  type FundResult,
  ownBalanceQuery,
  type PendingFund,
  settle,
} from "./fund.ts";

/** Sends one transfer to the agent, and repeats the request while its outcome is unknown. */
export function useFund(request: Omit<FundRequest, "amountAtomic" | "review">) {
  const { data } = useQuery(ownBalanceQuery(request.network.id));
  const balance = data?.balance ?? null;
  /** What the wallet is asked to sign. */
  const [toSign, setToSign] = useState<TypedData>();
  const review = (typedData: TypedData): Promise<void> => {
    setToSign(typedData);
    // Two frames: the first one may have begun before this change.
    return new Promise((resolve) => {
      requestAnimationFrame(() => requestAnimationFrame(() => resolve()));
    });
  };
  const pay = useMutation<FundResult, unknown, { amountAtomic: bigint } | { again: PendingFund }>({
    mutationFn: (what) =>
      "again" in what ? settle(what.again.body) : fund({ ...request, ...what, review }),
    onSuccess: invalidate.afterPayment,
    onSettled: () => {
      setToSign(undefined);
    },
  });
  /** Returns an error message for an invalid amount; otherwise undefined, and the transfer is sent. */
  const send = (amount: string): string | undefined => {
    const amountAtomic = parseUsdc(amount);
    if (amountAtomic === undefined || amountAtomic === 0n)
      return "Enter an amount such as 5 or 0.25, with at most 6 decimals.";
    if (balance !== null && amountAtomic > atomic(balance))
      return `Your wallet holds ${formatUsdc(balance)} USDC.`;
    pay.mutate({ amountAtomic });
    return undefined;
  };
  return { balance, toSign, pay, send };
}

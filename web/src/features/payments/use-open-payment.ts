import { useSearchParams } from "react-router";

/** Which payment's drawer is open: a place of its own in the history, so that "back" closes it. */
export function useOpenPayment() {
  const [parameters, setParameters] = useSearchParams();
  const go = (paymentId: string | undefined, replace: boolean): void => {
    setParameters(
      (before) => {
        const next = new URLSearchParams(before);
        if (paymentId === undefined) next.delete("payment");
        else next.set("payment", paymentId);
        return next;
      },
      { preventScrollReset: true, replace },
    );
  };
  return {
    openId: parameters.get("payment"),
    open: (paymentId: string): void => {
      go(paymentId, false);
    },
    close: (): void => {
      go(undefined, true);
    },
  };
}

import { useSearchParams } from "react-router";
import { useChangeParameters } from "../../lib/use-parameter.ts";

/** The open payment's drawer is part of the URL, so that "back" closes it. */
export function useOpenPayment() {
  const [parameters] = useSearchParams();
  const change = useChangeParameters();
  return {
    openId: parameters.get("payment"),
    open: (paymentId: string): void => {
      change((next) => {
        next.set("payment", paymentId);
      });
    },
    close: (): void => {
      change(
        (next) => {
          next.delete("payment");
        },
        { replace: true },
      );
    },
  };
}

import { useSearchParams } from "react-router";
import { useChangeParameters } from "../../lib/use-parameter.ts";

/** Which payment's drawer is open: a place of its own in the history, so that "back" closes it. */
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

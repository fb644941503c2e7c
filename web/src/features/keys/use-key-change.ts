import { useMutation } from "@tanstack/react-query";
import { invalidate } from "../../lib/query-keys.ts";

/** Common to the three forms for keys. */
export function useKeyChange<T>(mutationFn: () => Promise<T>, onSuccess: (answer: T) => void) {
  return useMutation({
    mutationFn,
    onSuccess,
    onSettled: invalidate.afterApiKeys,
    // The response may contain a key, which must not stay in memory after the dialog.
    gcTime: 0,
  });
}

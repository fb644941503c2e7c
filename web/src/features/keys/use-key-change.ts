import { useMutation } from "@tanstack/react-query";
import { invalidate } from "../../lib/query-keys.ts";

/** What the three forms of a key have in common. */
export function useKeyChange<T>(mutationFn: () => Promise<T>, onSuccess: (answer: T) => void) {
  return useMutation({
    mutationFn,
    onSuccess,
    onSettled: invalidate.afterApiKeys,
    // The answer may hold a key; it must not outlive the dialog.
    gcTime: 0,
  });
}

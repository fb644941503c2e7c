import { useCallback, useState } from "react";
import { NavigationType, useNavigationType, useSearchParams } from "react-router";

/**
 * A choice that lives in the address, so that back, refresh and sharing keep it. The field's own copy
 * changes at once: the router follows a moment later, and a field that waited for it would lose the
 * cursor.
 */
export function useParameter(key: string): [value: string, set: (value: string) => void] {
  const [parameters, setParameters] = useSearchParams();
  const isByHistory = useNavigationType() === NavigationType.Pop;
  const inAddress = parameters.get(key) ?? "";
  const [own, setOwn] = useState({ value: inAddress, inAddress });
  // After back or forward the address rules; otherwise it only follows what was typed.
  if (own.inAddress !== inAddress)
    setOwn({ value: isByHistory ? inAddress : own.value, inAddress });
  const set = useCallback(
    (value: string) => {
      setOwn((before) => ({ ...before, value }));
      setParameters(
        (before) => {
          const next = new URLSearchParams(before);
          if (value === "") next.delete(key);
          else next.set(key, value);
          return next;
        },
        { replace: true, preventScrollReset: true },
      );
    },
    [key, setParameters],
  );
  return [own.value, set];
}

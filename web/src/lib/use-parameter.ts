import { useCallback, useEffect, useState } from "react";
import {
  type NavigateOptions,
  NavigationType,
  useLocation,
  useNavigationType,
  useSearchParams,
} from "react-router";

/** The latest requested query string that the router has not applied yet. */
let requested: string | undefined;

/**
 * Changes the URL's query parameters. The router applies a change a moment later, so a second change would
 * overwrite the first. Each change therefore starts from the latest requested state: closing a drawer and
 * choosing a filter right after both take effect.
 */
export function useChangeParameters(): (
  change: (parameters: URLSearchParams) => void,
  options?: NavigateOptions,
) => void {
  const [, setParameters] = useSearchParams();
  const { key } = useLocation();
  useEffect(() => {
    requested = undefined;
  }, [key]);
  return useCallback(
    (change, options) => {
      setParameters(
        (before) => {
          const next = new URLSearchParams(requested ?? before);
          change(next);
          requested = next.toString();
          return next;
        },
        { preventScrollReset: true, ...options },
      );
    },
    [setParameters],
  );
}

/** A value, or the event of a field that has one. */
type Given = string | { currentTarget: { value: string } };

/**
 * A choice that is stored in the URL, so that back, reload and sharing keep it. The field's own copy changes
 * at once: the router follows a moment later, and a field that waited for it would lose the cursor.
 */
export function useParameter(key: string): [value: string, set: (given: Given) => void] {
  const [parameters] = useSearchParams();
  const change = useChangeParameters();
  const isByHistory = useNavigationType() === NavigationType.Pop;
  const inAddress = parameters.get(key) ?? "";
  const [own, setOwn] = useState({ value: inAddress, inAddress });
  // After back or forward the URL decides; otherwise it only follows the field.
  if (own.inAddress !== inAddress)
    setOwn({ value: isByHistory ? inAddress : own.value, inAddress });
  const set = useCallback(
    (given: Given) => {
      const value = typeof given === "string" ? given : given.currentTarget.value;
      setOwn((before) => ({ ...before, value }));
      change(
        (next) => {
          if (value === "") next.delete(key);
          else next.set(key, value);
        },
        { replace: true },
      );
    },
    [key, change],
  );
  return [own.value, set];
}

/** The item whose drawer is open is part of the URL, so that "back" closes it. */
export function useOpenItem(key: string): {
  openId: string | null;
  open: (id: string) => void;
  close: () => void;
} {
  const [parameters] = useSearchParams();
  const change = useChangeParameters();
  return {
    openId: parameters.get(key),
    open: (id) => {
      change((next) => {
        next.set(key, id);
      });
    },
    close: () => {
      change(
        (next) => {
          next.delete(key);
        },
        { replace: true },
      );
    },
  };
}

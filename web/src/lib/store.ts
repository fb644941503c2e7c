import { useSyncExternalStore } from "react";

/** A value outside of React that components follow. */
export function createStore<T>(initial: T): {
  get: () => T;
  set: (next: T) => void;
  use: () => T;
} {
  let value = initial;
  const listeners = new Set<() => void>();
  const get = (): T => value;
  const subscribe = (listener: () => void): (() => void) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  };
  return {
    get,
    set: (next) => {
      value = next;
      for (const listener of listeners) listener();
    },
    use: () => useSyncExternalStore(subscribe, get),
  };
}

/** What is being signed just now. The dialog shows it; `signed` moves it on. */
import { useSyncExternalStore } from "react";
import type { Change } from "./terms.ts";
import type { TypedData } from "../wire.ts";
import type { OrderKind } from "./typed-data.ts";

/** What an order says, in plain words. */
export interface Reading {
  changes: Change[];
  /** It says more than the screen showed when the button was pressed, so the person looks at it first. */
  isNews: boolean;
}

/** What a screen asks the owner to sign. */
export interface Ask {
  /** One of our own orders; or what the wallet is shown of another document. */
  kind: OrderKind | ((order: Record<string, unknown>) => TypedData);
  /** Of the dialog: "Create research-agent". */
  title: string;
  chainId: number;
  /** What the signature does, beside the changes; without it, a change of rules that moves no money. */
  effect?: string;
  /** The screen tells these changes beside the button that was pressed: a wallet without a window signs at once. */
  isTold?: boolean;
  /** Compares the order with what was asked for; throws `OrderMismatch` where it says something else. */
  read(order: Record<string, unknown>): Promise<Reading>;
}

/** Why the wallet was not asked yet, or is to be asked again. */
export type Notice =
  | "changed"
  | "declined"
  | "expired"
  | "other-account"
  | "lost"
  | { error: Error }
  | undefined;

export interface Signing {
  ask: Ask;
  changes: Change[];
  /** review: a press is waited for. wallet: the wallet has been asked. */
  step: "review" | "wallet" | "sending";
  notice: Notice;
  owner: string;
  /** Signs, or, after a lost answer, sends the signed order again. */
  press: () => void;
  cancel: () => void;
}

let current: Signing | null = null;
const listeners = new Set<() => void>();

export function show(signing: Signing | null): void {
  current = signing;
  for (const listener of listeners) listener();
}

const subscribe = (listener: () => void): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

export const useSigning = (): Signing | null => useSyncExternalStore(subscribe, () => current);

export const isSigning = (): boolean => current !== null;

/** The person did not sign: no fault, and nothing happened. */
export class NotSigned extends Error {
  override readonly name = "NotSigned";
  constructor() {
    super("You did not sign. Nothing was changed.");
  }
}

/** Signed and sent, and nobody waited for what came of it. */
export class OutcomeUnknown extends Error {
  override readonly name = "OutcomeUnknown";
  constructor() {
    super(
      "You signed, but the response was lost, so the change may have been made. Reload the page before you try again.",
    );
  }
}

/** Its answer was lost, or another tab was quicker. */
export class AlreadyDone extends Error {
  override readonly name = "AlreadyDone";
  constructor() {
    super(
      "This order was already carried out, and an order works only once. Reload the page to see the result. If a new key was not shown to you, create another one.",
    );
  }
}

/** Never shown to the wallet. */
export class OrderMismatch extends Error {
  override readonly name = "OrderMismatch";
  constructor(differences: Change[]) {
    const told = differences.map(
      ({ what, before, after }) =>
        `${what}: ${after || "nothing"} instead of ${before || "nothing"}`,
    );
    super(
      `The order from the service differs from your request${told.length > 0 ? ` (${told.join("; ")})` : ""}. Purser did not send it to your wallet.`,
    );
  }
}

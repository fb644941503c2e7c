/** The state of the current signature request. The dialog shows it; `signed` updates it. */
import type { OrderKind } from "../../../../packages/rules/src/orders.ts";
import { createStore } from "../store.ts";
import type { Change } from "./terms.ts";
import type { TypedData } from "../wire.ts";

/** The content of an order, in plain words. */
export interface Reading {
  changes: Change[];
  /**
   * The order contains more than the screen showed when the button was pressed, so the user reviews it first.
   */
  hasUnseenChanges: boolean;
}

export interface Signer {
  address: string;
  /** After its address: "the account you are signed in with". */
  description: string;
  /** The member of the request that has its signature. */
  signatureField: "signature" | "secondSignature";
}

/** What a screen requests the owner's signature for. */
export interface SignatureRequest {
  /** One of our own orders; or a function that makes the typed data of another document. */
  kind: OrderKind | ((order: Record<string, unknown>) => TypedData);
  /** The title of the dialog: "Create research-agent". */
  title: string;
  chainId: number;
  /** The wallets that sign the order, one after the other; without it, the wallet that is signed in. */
  signers?: readonly Signer[];
  /** The effect of the signature, beside the changes; without it, a change of rules that moves no money. */
  effect?: string;
  /** The screen shows these changes beside the pressed button, so a wallet without a window signs at once. */
  isOnScreen?: boolean;
  /** Compares the order with the request; throws `OrderMismatch` where they differ. */
  read(order: Record<string, unknown>): Promise<Reading>;
}

/** Why the wallet did not sign yet, or has to sign again. */
export type Notice =
  | "changed"
  | "declined"
  | "expired"
  | "other-account"
  | "lost"
  | { error: Error }
  | undefined;

export interface Signing {
  request: SignatureRequest;
  changes: Change[];
  /** review: waits for a press. wallet: waits for the wallet. */
  step: "review" | "wallet" | "sending";
  notice: Notice;
  /** What the wallet signs. */
  typedData: TypedData;
  signer: Signer;
  /** Signs with what is connected now; or after a lost response, sends the signed order again. */
  awaitPress: () => void;
  /** The dialog calls it when it is on screen; the wallet opens after that. */
  onShown: () => void;
  cancel: () => void;
}

const current = createStore<Signing | null>(null);

export const show = current.set;
export const useSigning = current.use;

/** The user did not sign: not an error, and nothing was changed. */
export class NotSigned extends Error {
  override readonly name = "NotSigned";
  constructor() {
    super("You did not sign. Nothing was changed.");
  }
}

/** The order was signed and sent, but its outcome is not known. */
export class OutcomeUnknown extends Error {
  override readonly name = "OutcomeUnknown";
  constructor() {
    super(
      "You signed, but the response was lost, so the change may have been made. Reload the page before you try again.",
    );
  }
}

/** The response was lost, or another tab was faster. */
export class AlreadyDone extends Error {
  override readonly name = "AlreadyDone";
  constructor() {
    super(
      "This order was already carried out, and an order works only once. Reload the page to see the result. If a new key was not shown to you, create another one.",
    );
  }
}

/** The order does not match the request, so it is not shown to the wallet. */
export class OrderMismatch extends Error {
  override readonly name = "OrderMismatch";
  constructor(differences: Change[]) {
    const texts = differences.map(
      ({ what, before, after }) =>
        `${what}: ${after || "nothing"} instead of ${before || "nothing"}`,
    );
    super(
      `The order from the service differs from your request${texts.length > 0 ? ` (${texts.join("; ")})` : ""}. Purser did not ask you to sign it.`,
    );
  }
}

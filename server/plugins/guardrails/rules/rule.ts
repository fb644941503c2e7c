/** What a rule is. One file per rule holds everything about it; index.ts puts them in their order. */
import type { Address } from "viem";
import type { ErrorCode } from "../../../errors.ts";
import { formatAtomic } from "../../../core/money.ts";

export interface Rule<Facts, Code extends ErrorCode = ErrorCode> {
  name: string;
  /** The refusals it gives. Status, title and the general advice for each are in server/errors.ts. */
  codes: readonly Code[];
  /** Null: not set (no limit per payment, no maxAmount). */
  check(facts: Facts): Finding<Code> | null;
  /** The largest payment it lets pass, where the amount matters; null: no limit is set. */
  most?(facts: Facts): bigint | null;
  /** The numbers it decides by; without it those of the daily limit are reported. */
  policy?(facts: Facts): PolicyNumbers | null;
  /** Where the general advice of the code does not fit this refusal, or numbers go with it. */
  advise?(facts: Facts, moment: Moment): Advice;
  /** The owner may let one payment pass all the same (plugins/approvals). */
  liftable?: true;
  /** A limit over time: in purser_limits under the rule's name, and a refusal shows when it ends. */
  rolling?: true;
  /** Where the owner sets it; a rule of the request or of the chain has none. */
  field?: FormField;
}

export interface Finding<Code extends ErrorCode = ErrorCode> {
  /** Null: it lets the payment pass. */
  refusal: Code | null;
  /** What it saw, in a sentence for agent and owner. */
  detail: string;
}

/** The numbers of a rule as on the wire. */
export interface PolicyNumbers {
  window: string;
  limit: string;
  spent: string;
  reserved: string;
  remaining: string;
}

/** What the database returned beside the facts, and the wallet. */
export interface Moment {
  /** When the same amount will fit; null: never. */
  availableAt: Date | null;
  nextReleaseAt: Date | null;
  walletAddress: Address;
}

export interface Advice {
  retryable?: boolean;
  suggestion?: string;
  /** Further members of the problem object. */
  extra?: Record<string, unknown>;
}

/** A field of the owner's form, and of the body that creates or changes an agent or lists a payee. */
export interface FormField {
  name: string;
  /** Set for one payee of the list; without it, for the agent. */
  of?: "payee";
  label: string;
  help: string;
}

export const usdc = (atomic: bigint): string => `${formatAtomic(atomic)} USDC`;

/** The interface of a rule. Each rule is in its own file; index.ts orders them. */
import type { Address } from "viem";
import type { ErrorCode } from "../../../errors.ts";
import { formatAtomic } from "../../../core/money.ts";

export interface Rule<Facts, Code extends ErrorCode = ErrorCode> {
  name: string;
  /** The error codes of its refusals. Their status, title and general advice are in server/errors.ts. */
  codes: readonly Code[];
  /** Null: the rule is not set (no limit per payment, no maxAmount). */
  check(facts: Facts): Finding<Code> | null;
  /** The largest payment it allows, if it depends on the amount; null: no limit is set. */
  most?(facts: Facts): bigint | null;
  /** The numbers it compares; without it, those of the daily limit are reported. */
  policy?(facts: Facts): PolicyNumbers | null;
  /** Specific advice, if the general advice of the code does not fit this refusal, or further numbers. */
  advise?(facts: Facts, moment: Moment): Advice;
  /** The owner may approve a payment that it refuses (plugins/approvals). */
  liftable?: true;
  /** A rolling limit: listed in purser_limits under the rule's name, and a refusal shows when it ends. */
  rolling?: true;
  /** The form field where the owner sets it; rules about the request or the chain have none. */
  field?: FormField;
}

export interface Finding<Code extends ErrorCode = ErrorCode> {
  /** Null: the payment is allowed. */
  refusal: Code | null;
  /** What it compared, in a sentence for agent and owner. */
  detail: string;
}

/** The numbers of a rule in their wire format. */
export interface PolicyNumbers {
  window: string;
  limit: string;
  spent: string;
  reserved: string;
  remaining: string;
}

/** The times that the database returned besides the facts, and the wallet. */
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

/** A field of the owner's form, and of the request body that creates or changes an agent or adds a payee. */
export interface FormField {
  name: string;
  /** Set for a payee's entry; undefined for the agent. */
  of?: "payee";
  label: string;
  help: string;
}

export const usdc = (atomic: bigint): string => `${formatAtomic(atomic)} USDC`;

// What owners and agents did, and what they were answered: the invariants compare it with the ledger and the chain.
import type { Address, Hex } from "viem";
import type { Answer, Lost } from "./host.ts";

/** A rule of an agent. Null: no limit; a payee that is not allowed is null, too. */
export type RuleName =
  | "status"
  | "dailyLimit"
  | "weeklyLimit"
  | "monthlyLimit"
  | "perPaymentLimit"
  | "paymentsPerHour"
  /** Whether the owner stopped everything: "yes" or "no". */
  | "stopped"
  /** Whether a rule paused the agent: "yes" or "no". */
  | "pausedByRule"
  | `payee ${string}`;
export interface PayeeRule {
  dailyLimit: bigint | null;
}
export type RuleValue = bigint | string | PayeeRule | null;

/** A change that an owner asked for. */
interface Change {
  values: Map<RuleName, RuleValue>;
  sentMs: number;
  /** When its owner knew that it was made. */
  certainMs: number;
  /** After this time it takes no effect any more. */
  overMs: number;
}

/** A statement that waits for a lock is dated when it began to wait, and this is the longest wait. */
const LOCK_WAIT_MS = 5_000;

/** The rules of the agents over time. */
export class RuleHistory {
  readonly #changes = new Map<string, Change[]>();

  /** Before it is sent. It concerns all of these agents. */
  begin(
    agentIds: readonly string[],
    values: Iterable<[RuleName, RuleValue]>,
    sentMs: number,
  ): Change {
    const change = { values: new Map(values), sentMs, certainMs: Infinity, overMs: Infinity };
    for (const id of agentIds) this.#changes.set(id, [...(this.#changes.get(id) ?? []), change]);
    return change;
  }

  /** The values that may have been in force at this time. */
  possible(agentId: string, name: RuleName, atMs: number): RuleValue[] {
    const all = (this.#changes.get(agentId) ?? []).filter(({ values }) => values.has(name));
    return all
      .filter(({ sentMs }) => sentMs <= atMs + LOCK_WAIT_MS)
      .filter(
        (one) =>
          !all.some(
            (later) => later !== one && later.certainMs <= atMs && later.sentMs >= one.overMs,
          ),
      )
      .map(({ values }) => values.get(name) as RuleValue);
  }
}

/** Something that an agent bought without a key, maybe several times. */
export interface Purchase {
  who: string;
  from: Address;
  to: Address;
  amountAtomic: bigint;
  /** The payments that it was told of. */
  paid: Set<string>;
  /** How often it wanted to buy. */
  wanted: number;
  hasNoOutcome: boolean;
}

/** A withdrawal that an owner signed. */
export interface SignedOrder {
  who: string;
  wallet: Address;
  nonce: Hex;
  deadlineSeconds: number;
  answers: (Answer | Lost)[];
  /** Executed more than once, with different keys or none. */
  isRepeated: boolean;
}

export interface ApprovalRecord {
  payee: Address;
  amountAtomic: bigint;
  /** When an owner first sent a signature for it. */
  grantedMs: number;
  /** When its owner knew that it was declined. */
  declinedMs: number;
}

export class Records {
  readonly rules = new RuleHistory();
  readonly purchases: Purchase[] = [];
  readonly orders: SignedOrder[] = [];
  readonly approvals = new Map<string, ApprovalRecord>();
}

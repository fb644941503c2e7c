/** Computes how much an agent may pay now, by the rules that do not depend on the payee. */
import { GENERAL_RULES, type GeneralRule } from "../../schemas/agents.ts";
import { RULES, type AgentState, type Snapshot } from "./rules.ts";

export interface Available {
  /** The largest payment that passes; 0 if none does. */
  atomic: bigint;
  /** The rule that refuses any larger payment. */
  boundBy: GeneralRule;
}

/** The facts for the balance, floor and gas rules. */
export type WalletFacts = Pick<Snapshot, "outstanding" | "floor" | "gasShort"> & {
  balance: bigint;
  /** The database is behind the chain: its sums may lack payments, and nothing is paid meanwhile. */
  isBehind: boolean;
};

const UNLIMITED = { balance: 2n ** 256n, outstanding: 0n };

const isGeneral = (name: string): name is GeneralRule =>
  (GENERAL_RULES as readonly string[]).includes(name);

const GENERAL = RULES.flatMap((rule) => {
  const { name } = rule;
  return isGeneral(name) ? [{ ...rule, name }] : [];
});

/** Without the wallet's facts only 0 is certain. Null: it depends on data that cannot be read now. */
export function availableOf(agent: AgentState, wallet: WalletFacts | undefined): Available | null {
  const isKnown = wallet !== undefined && !wallet.isBehind;
  const ofAgent = Object.assign({}, ...RULES.map((rule) => rule.factsOf?.(agent))) as Omit<
    Snapshot,
    "requested" | "balance" | "outstanding"
  >;
  const found = largestPayment({ ...ofAgent, ...(isKnown ? wallet : UNLIMITED) });
  return isKnown || found.atomic === 0n ? found : null;
}

/** Takes those facts of a decision that are the same for every payee. */
export function largestPayment(facts: Omit<Snapshot, "requested">): Available {
  const refusing = (requested: bigint) =>
    GENERAL.find((rule) => rule.check({ ...facts, requested })?.refusal)?.name;
  const most = GENERAL.flatMap((rule) => rule.most?.({ ...facts, requested: 0n }) ?? []).reduce(
    (least, one) => (one < least ? one : least),
  );
  const stops = refusing(most === 0n ? 1n : most);
  const boundBy = stops ?? refusing(most + 1n);
  if (boundBy === undefined) throw new Error("no rule limits a payment");
  return { atomic: stops === undefined ? most : 0n, boundBy };
}

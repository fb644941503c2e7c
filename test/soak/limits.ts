// Checks that each limit held at every moment: computes the rolling sums again naively, and compares them
// with the limits that the owners had set by then.
import { check, type Check, type PaymentRow, type Rows } from "./reconciliation.ts";
import type { RuleInForce, SoakAgent } from "./clients.ts";

const DAY_MS = 86_400_000;

/**
 * For every reservation, from the first on: the sum at its moment, itself included, must not exceed any limit
 * that may have been in force then. A paused agent has no reservation, and none was released on a wrong
 * proof.
 */
export function checkLimits({ payments }: Rows, agents: SoakAgent[]): Check[] {
  const over: string[] = [];
  const paused: string[] = [];
  const early: string[] = [];
  let looked = 0;
  for (const agent of agents) {
    const own = payments.filter(
      (row) => row.agent_id === agent.id && (row.kind === "spend" || row.kind === "x402"),
    );
    for (const one of own) {
      looked += 1;
      const [began, ...later] = one.weighed;
      const atMs = began?.atMs ?? one.created_at.getTime();
      const sum = own
        .filter((row) => row.created_at.getTime() > atMs - DAY_MS && weighsAt(row, atMs))
        .reduce((total, { amount }) => total + BigInt(amount), 0n);
      // Rules are recorded in whole milliseconds.
      const wholeMs = Math.floor(atMs);
      const limit = possible(agent.rules, wholeMs, ({ limitAtomic }) => limitAtomic).reduce(
        (most, next) => (next > most ? next : most),
        0n,
      );
      const name = `${agent.id} ${one.kind} ${one.id}`;
      if (sum > limit) over.push(`${name} made ${sum} of ${limit}`);
      const states = possible(agent.rules, wholeMs, (rule) => rule.paused);
      if (!states.includes(false)) paused.push(name);
      if (later.some(({ counted }) => counted))
        early.push(`${name} of ${one.amount}: ${one.corrections.join("; ")}`);
    }
  }
  return [
    check("limits held at every moment", looked, over),
    check("no budget given back for what was paid after all", looked, early),
    check("no reservation of a paused agent", looked, paused),
  ];
}

const weighsAt = ({ weighed }: PaymentRow, atMs: number): boolean =>
  weighed.findLast((turn) => turn.atMs <= atMs)?.counted === true;

/** The values that may have been in force at that time. */
function possible<T>(
  rules: RuleInForce[],
  atMs: number,
  read: (rule: RuleInForce) => T | undefined,
): T[] {
  const requested = rules.filter((rule) => read(rule) !== undefined && rule.requestedMs <= atMs);
  // Rules before the last certain one are no longer in force.
  const from = Math.max(
    requested.findLastIndex(({ certainMs }) => certainMs < atMs),
    0,
  );
  const ghosts = requested.slice(0, from).filter(({ ghostUntilMs = 0 }) => ghostUntilMs >= atMs);
  return [...ghosts, ...requested.slice(from)].map(read) as T[];
}

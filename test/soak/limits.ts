// Whether each limit held at every moment: the rolling sums again, counted naively, against what the owners had asked for by then.
import { check, type Check, type PaymentRow, type Rows } from "./books.ts";
import type { RuleInForce, SoakAgent } from "./clients.ts";

const DAY_MS = 86_400_000;

/**
 * Every reservation again, from the first on: what weighs at its moment, itself included, against every limit that
 * may have been in force then. And none of a paused agent, and none that was given back on proof that was wrong.
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
      // Rules are noted in whole milliseconds.
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
export function possible<T>(
  rules: RuleInForce[],
  atMs: number,
  read: (rule: RuleInForce) => T | undefined,
): T[] {
  const said = rules.filter((rule) => read(rule) !== undefined && rule.askedMs <= atMs);
  // Everything before the last certain one is over.
  const from = Math.max(
    said.findLastIndex(({ certainMs }) => certainMs < atMs),
    0,
  );
  const ghosts = said.slice(0, from).filter(({ ghostUntilMs = 0 }) => ghostUntilMs >= atMs);
  return [...ghosts, ...said.slice(from)].map(read) as T[];
}

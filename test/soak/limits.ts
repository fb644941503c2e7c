// Whether each limit held at every moment: the rolling sums again, counted naively, against what the owners had asked for by then.
import { check, type Check, type Rows } from "./books.ts";
import type { RuleInForce, SoakAgent } from "./clients.ts";

const DAY_MS = 86_400_000;

/**
 * Every reservation again, from the first on: what counts at its moment, itself included, against every limit that
 * may have been in force then. And none of a paused agent.
 */
export function checkLimits({ payments }: Rows, agents: SoakAgent[]): Check[] {
  const over: string[] = [];
  const paused: string[] = [];
  let looked = 0;
  for (const agent of agents) {
    const counted = payments
      .filter((row) => row.agent_id === agent.id && (row.kind === "spend" || row.kind === "x402"))
      .map((row) => ({
        id: row.id,
        amount: BigInt(row.amount),
        atMs: row.created_at.getTime(),
        // What is not settled in the end was given back when it was written last.
        untilMs: row.status === "settled" ? Number.POSITIVE_INFINITY : row.updated_at.getTime(),
      }));
    for (const one of counted) {
      looked += 1;
      const sum = counted
        .filter(
          ({ atMs, untilMs }) => atMs <= one.atMs && atMs > one.atMs - DAY_MS && untilMs > one.atMs,
        )
        .reduce((total, { amount }) => total + amount, 0n);
      const limit = possible(agent.rules, one.atMs, ({ limitAtomic }) => limitAtomic).reduce(
        (most, next) => (next > most ? next : most),
        0n,
      );
      if (sum > limit) over.push(`${agent.id} ${one.id} made ${sum} of ${limit}`);
      const states = possible(agent.rules, one.atMs, (rule) => rule.paused);
      if (!states.includes(false)) paused.push(`${agent.id} ${one.id}`);
    }
  }
  return [
    check("limits held at every moment", looked, over),
    check("no reservation of a paused agent", looked, paused),
  ];
}

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

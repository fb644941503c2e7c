/** What an agent's wallet holds on all networks together: its address is the same on each. */
import { atomic } from "./money.ts";
import type { NetworkBalance } from "./wire.ts";

export type Held = Pick<NetworkBalance, "network" | "balance">;

/** The sum of what is known; `silent` are the networks that do not answer, and so are not in it. */
export function totalOf(balances: readonly Held[]): { known: bigint; silent: string[] } {
  return {
    known: balances.reduce(
      (sum, { balance }) => (balance === null ? sum : sum + atomic(balance)),
      0n,
    ),
    silent: balances.filter(({ balance }) => balance === null).map(({ network }) => network),
  };
}

/** Worth showing: money, or not known to be empty. */
export const mayHold = ({ balance }: Held): boolean => balance === null || atomic(balance) > 0n;

/** Where there may be something to take out: the agent's own network first. */
export const placesOf = (agent: {
  network: string;
  balances: NetworkBalance[];
}): NetworkBalance[] =>
  [...agent.balances]
    .filter((place) => place.network === agent.network || mayHold(place))
    .sort((a, b) => Number(b.network === agent.network) - Number(a.network === agent.network));

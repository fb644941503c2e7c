/** The balances of an agent's wallet on all networks; its address is the same on each. */
import { atomic } from "./money.ts";
import type { NetworkBalance } from "./wire.ts";

type HeldBalance = Pick<NetworkBalance, "network" | "balance">;

/** The sum of the known balances; `silent` are the networks that do not respond and are not included. */
export function totalOf(balances: readonly HeldBalance[]): { known: bigint; silent: string[] } {
  return {
    known: balances.reduce(
      (sum, { balance }) => (balance === null ? sum : sum + atomic(balance)),
      0n,
    ),
    silent: balances.filter(({ balance }) => balance === null).map(({ network }) => network),
  };
}

/** The balance is positive, or unknown. */
export const mayHold = ({ balance }: HeldBalance): boolean =>
  balance === null || atomic(balance) > 0n;

/** The networks where there may be something to withdraw, the agent's own network first. */
export const placesOf = (agent: {
  network: string;
  balances: NetworkBalance[];
}): NetworkBalance[] =>
  [...agent.balances]
    .filter((place) => place.network === agent.network || mayHold(place))
    .sort((a, b) => Number(b.network === agent.network) - Number(a.network === agent.network));

/** The sort orders of the list of agents. */
import { atomic, perMille } from "../../lib/money.ts";
import { totalOf } from "../../lib/balances.ts";
import type { Agent } from "../../lib/wire.ts";

const timeOf = (iso: string | null): number => (iso === null ? 0 : Date.parse(iso));
const balanceOf = ({ balances }: Agent): bigint => {
  const { known, silent } = totalOf(balances);
  return silent.length === balances.length ? -1n : known;
};
const usedOf = ({ limits }: Agent): number =>
  perMille(atomic(limits.spent) + atomic(limits.reserved), atomic(limits.limit));

export const SORTS = {
  recent: {
    label: "Last activity",
    compare: (a: Agent, b: Agent) => timeOf(b.lastActivityAt) - timeOf(a.lastActivityAt),
  },
  name: {
    label: "Name",
    compare: (a: Agent, b: Agent) => a.name.localeCompare(b.name, "en", { numeric: true }),
  },
  balance: {
    label: "Balance",
    compare: (a: Agent, b: Agent) => Number(balanceOf(b) - balanceOf(a)),
  },
  used: { label: "Closest to limit", compare: (a: Agent, b: Agent) => usedOf(b) - usedOf(a) },
  created: {
    label: "Newest",
    compare: (a: Agent, b: Agent) => timeOf(b.createdAt) - timeOf(a.createdAt),
  },
} as const;

/** The first one is the default, which is not in the URL. */
export const SORT_OPTIONS = Object.entries(SORTS).map(([key, { label }]) => ({
  value: key === "recent" ? "" : key,
  label,
}));

import { useDebouncedValue } from "@mantine/hooks";
import { useNowMs } from "../../components/RelativeTime.tsx";
import { useParameter } from "../../lib/use-parameter.ts";
import type { SpendingFilter } from "../../lib/wire.ts";
import type { SpendingRange } from "./api.ts";
import { daysOf, readPeriod } from "./period.ts";

const PAUSE_MS = 250;

export type Choice = ReturnType<typeof useChoice>;

/** The filter in the URL, and the request that it stands for. */
export function useChoice() {
  const [period, setPeriod] = useParameter("period");
  const [from, setFrom] = useParameter("from");
  const [to, setTo] = useParameter("to");
  const [search, setSearch] = useParameter("search");
  const [agentId, setAgentId] = useParameter("agent");
  const [payee, setPayee] = useParameter("payee");
  const [site, setSite] = useParameter("site");
  const [task, setTask] = useParameter("task");
  const [settled] = useDebouncedValue(search.trim(), PAUSE_MS);
  const chosen = readPeriod(period);
  const days = daysOf(chosen, { from, to }, useNowMs());
  const range: SpendingRange = { ...days, search: settled, agentId, payee, site, task };
  return {
    range,
    isFiltered: [search, agentId, payee, site, task].some((value) => value !== ""),
    period: { value: chosen, onChange: setPeriod },
    from: { value: from, onChange: setFrom, max: to },
    to: { value: to, onChange: setTo, min: from },
    search: { value: search, onChange: setSearch },
    agentId: { value: agentId, set: setAgentId },
    payee: { value: payee, set: setPayee },
    site: { value: site, set: setSite },
    task: { value: task, set: setTask },
    /** As it is stored: a period that moves with the calendar stays one. */
    toSave: (): SpendingFilter => ({
      ...(chosen === "custom" ? { ...(from && { from }), ...(to && { to }) } : { period: chosen }),
      ...(search.trim() !== "" && { search: search.trim() }),
      ...(agentId !== "" && { agentId }),
      ...(payee !== "" && { payee }),
      ...(site !== "" && { site }),
      ...(task !== "" && { task }),
    }),
    apply: (filter: SpendingFilter): void => {
      setPeriod(filter.period ?? "custom");
      setFrom(filter.from ?? "");
      setTo(filter.to ?? "");
      setSearch(filter.search ?? "");
      setAgentId(filter.agentId ?? "");
      setPayee(filter.payee ?? "");
      setSite(filter.site ?? "");
      setTask(filter.task ?? "");
    },
  };
}

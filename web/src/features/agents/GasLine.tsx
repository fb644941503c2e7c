import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useNetworkNames } from "../../shared/info.ts";
import { overviewQuery } from "./api.ts";

/** The gas cost of these agents' payments, and the rest of the daily gas budget. */
export function GasLine(): ReactNode {
  const { data } = useQuery(overviewQuery());
  const nameOf = useNetworkNames();
  const budgets = data?.gas.filter((budget) => budget.for === "payments") ?? [];
  const isAlone = budgets.length === 1;
  if (budgets.length === 0) return null;
  return (
    <Text c="dimmed" size="sm">
      Gas paid for your agents:{" "}
      {budgets
        .map(
          ({ network, used, left, perDay }) =>
            `${used} USDC${isAlone ? "" : ` on ${nameOf(network)}`} (${left} of ${perDay} USDC a day left)`,
        )
        .join(", ")}
    </Text>
  );
}

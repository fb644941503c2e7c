import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Note } from "../../components/Layout.tsx";
import { LinkAction } from "../../components/LinkAction.tsx";
import { api } from "../../lib/api.ts";
import { atomic, formatUsdc, toDecimal } from "../../lib/money.ts";
import { invalidate } from "../../lib/query-keys.ts";
import { useParameter } from "../../lib/use-parameter.ts";
import type { Agent } from "../../lib/wire.ts";
import { useRights } from "../../shared/session/OwnerOnly.tsx";
import { pause } from "./api.ts";

/**
 * The links in our emails, `?do=pause` and `?do=lower`: both restrict the agent, with one press and without
 * the wallet.
 */
export function Tighten({ agent }: { agent: Agent }): ReactNode {
  const rights = useRights();
  const [wanted, setWanted] = useParameter("do");
  const leave = (): void => {
    setWanted("");
  };
  const half = atomic(agent.dailyLimit) / 2n;
  const act = useMutation({
    mutationFn: () =>
      wanted === "pause"
        ? pause(agent.id)
        : api.patch(`/api/agents/${agent.id}`, { dailyLimit: toDecimal(half) }),
    onSuccess: () => {
      notifications.show({
        message:
          wanted === "pause"
            ? `${agent.name} is paused and cannot pay.`
            : `${agent.name} may spend ${formatUsdc(half)} USDC in 24 hours.`,
      });
      leave();
    },
    onSettled: invalidate.afterRules,
  });
  if ((wanted !== "pause" && wanted !== "lower") || rights === "read") return null;
  if (agent.status === "archived" || (wanted === "pause" && agent.status === "paused"))
    return <Note>No change needed: this agent already cannot pay.</Note>;
  if (wanted === "lower" && half === 0n)
    return <Note>No change needed: this agent&rsquo;s daily limit is already zero.</Note>;
  return wanted === "pause" ? (
    <LinkAction
      title={`Pause ${agent.name}?`}
      confirm={`Pause ${agent.name}`}
      mutation={act}
      failed="The agent was not paused"
      pending="Pausing…"
      onLeave={leave}
    >
      It cannot pay until you resume it with your signature. Nothing has changed yet.
    </LinkAction>
  ) : (
    <LinkAction
      title={`Lower the daily limit of ${agent.name}?`}
      confirm={`Lower it to ${formatUsdc(half)} USDC`}
      mutation={act}
      failed="The limit was not lowered"
      pending="Lowering…"
      onLeave={leave}
    >
      It may now spend {formatUsdc(agent.dailyLimit)} USDC in 24 hours; this halves the limit.
      Raising it again needs your signature. Nothing has changed yet.
    </LinkAction>
  );
}

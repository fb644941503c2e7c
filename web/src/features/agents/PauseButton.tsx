import { ActionIcon } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { PauseIcon, PlayIcon } from "../../components/icons.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import { toastFailure } from "../../components/toast.ts";
import { NotSigned } from "../../lib/orders/signing.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent } from "../../lib/wire.ts";
import { useRights } from "../../shared/session/OwnerOnly.tsx";
import { useSession } from "../../shared/session/session-context.ts";
import { pause, resume } from "./api.ts";

/** Pausing needs only the session and takes effect at once. Resuming needs the owner's signature. */
export function PauseButton({ agent, compact }: { agent: Agent; compact?: boolean }): ReactNode {
  const rights = useRights();
  const isStopped = useSession().session?.stopped;
  const isPaused = agent.status === "paused";
  const verb = isPaused ? "Resume" : "Pause";
  const change = useMutation({
    mutationFn: () => (isPaused ? resume(agent) : pause(agent.id)),
    onSuccess: () => {
      notifications.show({
        message: isPaused
          ? `${agent.name} can pay again.`
          : `${agent.name} is paused and cannot pay.`,
      });
    },
    onError: (error) => {
      if (!(error instanceof NotSigned))
        toastFailure(`${agent.name}: ${verb.toLowerCase()} failed`)(error);
    },
    onSettled: invalidate.afterRules,
  });
  if (agent.status === "archived" || rights === "read") return null;
  // While everything is stopped, no agent can be resumed alone.
  if (isPaused && (isStopped || rights !== "all")) return null;
  const icon = isPaused ? <PlayIcon size={16} /> : <PauseIcon size={16} />;
  if (compact === true)
    return (
      <ActionIcon
        aria-label={`${verb} ${agent.name}`}
        title={verb}
        aria-disabled={change.isPending || undefined}
        onClick={() => {
          if (!change.isPending) change.mutate();
        }}
      >
        {change.isPending ? "…" : icon}
      </ActionIcon>
    );
  return (
    <MutationButton mutation={change} pending={isPaused ? "Resuming…" : "Pausing…"}>
      {icon}
      {verb}
    </MutationButton>
  );
}

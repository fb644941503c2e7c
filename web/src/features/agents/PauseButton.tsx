import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Button } from "../../components/Button.tsx";
import { PauseIcon, PlayIcon } from "../../components/icons.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent } from "../../lib/wire.ts";
import { pause, resume } from "./api.ts";
import { NotSigned } from "../../lib/orders/signing.ts";

/** Pausing needs only the session and takes effect at once. Resuming needs the owner's signature. */
export function PauseButton({ agent, compact }: { agent: Agent; compact?: boolean }): ReactNode {
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
      if (error instanceof NotSigned) return;
      notifications.show({
        color: "red",
        title: `${agent.name}: ${verb.toLowerCase()} failed`,
        message: error.message,
      });
    },
    onSettled: invalidate.afterRules,
  });
  if (agent.status === "archived") return null;
  return (
    <Button
      variant={compact === true ? "icon" : "secondary"}
      aria-label={compact === true ? `${verb} ${agent.name}` : undefined}
      title={compact === true ? verb : undefined}
      pending={change.isPending && (compact === true ? "…" : isPaused ? "Resuming…" : "Pausing…")}
      onClick={() => {
        change.mutate();
      }}
    >
      {isPaused ? <PlayIcon size={16} /> : <PauseIcon size={16} />}
      {compact !== true && verb}
    </Button>
  );
}

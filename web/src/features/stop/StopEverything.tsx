import { Button } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { StopIcon } from "../../components/icons.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import { stopEverything } from "./api.ts";
import styles from "./Stop.module.css";

/** On every screen: pauses all agents at once. The session is enough; the wallet is not needed. */
export function StopEverything({ onStopped }: { onStopped: () => void }): ReactNode {
  const [isConfirming, confirming] = useDisclosure();
  const stop = useMutation({
    mutationFn: stopEverything,
    onSuccess: ({ stopped }) => {
      confirming.close();
      onStopped();
      const { agents } = stopped;
      notifications.show({
        message: `Everything is stopped: ${agents} ${agents === 1 ? "agent is" : "agents are"} paused.`,
      });
    },
    onSettled: invalidate.afterStop,
  });
  return (
    <>
      <Button
        className={styles.button}
        color="red"
        variant="subtle"
        size="xs"
        aria-label="Stop everything"
        leftSection={<StopIcon size={16} />}
        onClick={() => {
          stop.reset();
          confirming.open();
        }}
      >
        <span className={styles.label}>Stop everything</span>
      </Button>
      <ConfirmDialog
        opened={isConfirming}
        title="Stop everything?"
        mutation={stop}
        failed="Nothing was stopped"
        confirm="Stop everything"
        pending="Stopping…"
        onCancel={confirming.close}
      >
        All your agents are paused at once, and no agent, key, connection or approval can be added.
        Payments that are already sent settle. Withdrawing and closing payment channels work. To
        resume, you sign.
      </ConfirmDialog>
    </>
  );
}

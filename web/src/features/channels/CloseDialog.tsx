import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import { closeChannels } from "./api.ts";
import { whatClosingDoes } from "./words.ts";

/** One channel, or all of the agent's. */
export interface ToClose {
  title: string;
  channelId?: string;
  delaySeconds: number;
}

interface CloseDialogProps {
  agentId: string;
  closing: ToClose | undefined;
  onClose: () => void;
}

/** Says what closing does, and closes. */
export function CloseDialog({ agentId, closing, onClose }: CloseDialogProps): ReactNode {
  const close = useMutation({
    mutationFn: () => closeChannels(agentId, closing?.channelId),
    onSuccess: ({ closing: count }) => {
      notifications.show({
        message: count === 1 ? "The channel is closing." : `${count} channels are closing.`,
      });
      onClose();
    },
    onSettled: invalidate.afterChannels,
  });
  return (
    <ConfirmDialog
      opened={closing !== undefined}
      disabled={closing === undefined}
      title={closing?.title ?? ""}
      mutation={close}
      failed="It was not closed"
      confirm={closing?.channelId === undefined ? "Close channels" : "Close channel"}
      pending="Closing…"
      onCancel={() => {
        close.reset();
        onClose();
      }}
    >
      {whatClosingDoes(closing?.delaySeconds ?? 0)}
    </ConfirmDialog>
  );
}

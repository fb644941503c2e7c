import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ConfirmDialog } from "../../components/ConfirmDialog.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import { closeChannels } from "./api.ts";
import { whatClosingDoes } from "./words.ts";

/** One channel, or all that are open. */
export interface ToClose {
  /** How many channels that closes. */
  channels: number;
  one?: { id: string; seller: string };
  delaySeconds: number;
}

const titleOf = ({ channels, one }: ToClose): string => {
  if (one) return `Close the payment channel to ${one.seller}?`;
  return channels === 1 ? "Close the payment channel?" : `Close ${channels} payment channels?`;
};

interface CloseDialogProps {
  agentId: string;
  closing: ToClose | undefined;
  onClose: () => void;
}

/** Says what closing does, and closes. */
export function CloseDialog({ agentId, closing, onClose }: CloseDialogProps): ReactNode {
  const close = useMutation({
    mutationFn: () => closeChannels(agentId, closing?.one?.id),
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
      title={closing ? titleOf(closing) : ""}
      mutation={close}
      failed="It was not closed"
      confirm={closing?.channels === 1 ? "Close channel" : "Close channels"}
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

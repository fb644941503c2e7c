import { Button, Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { ApiError } from "../lib/api.ts";
import { ErrorNotice } from "./ErrorNotice.tsx";
import { PendingButton } from "./PendingButton.tsx";

export interface RequestFormProps {
  mutation: { isPending: boolean; error: unknown; mutate: () => void };
  /** The title of the error. */
  failed?: string;
  confirm: string;
  /** Shown on the button while the request runs. */
  pending: string;
  color?: "red";
  /** "default" where another action is the main one. */
  variant?: "filled" | "default";
  /** The place of the buttons: at the end beside a cancel button, else at the start. */
  align?: "start" | "end";
  disabled?: boolean;
  /** The request has succeeded, and the buttons are gone. */
  isDone?: boolean;
  /** Other buttons, after this one. */
  more?: ReactNode;
  cancel?: string;
  onCancel?: () => void;
  children: ReactNode;
}

/** A form that sends one request: its fields, the error of the request, and the buttons. */
export function RequestForm(props: RequestFormProps): ReactNode {
  const { mutation, failed, confirm, pending, color, disabled = false, children } = props;
  const { cancel = "Cancel", onCancel, more, isDone = false, variant = "filled" } = props;
  const isWaiting = mutation.error instanceof ApiError && mutation.error.isWaiting;
  const { align = onCancel ? "end" : "start" } = props;
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        // It may be in a dialog that belongs to another form.
        event.stopPropagation();
        if (!disabled && !mutation.isPending) mutation.mutate();
      }}
    >
      <Stack>
        {children}
        {mutation.error !== null && <ErrorNotice title={failed} error={mutation.error} />}
        {!isDone && (
          <Group justify={`flex-${align}`}>
            {onCancel && <Button onClick={onCancel}>{isWaiting ? "Close" : cancel}</Button>}
            {!isWaiting && (
              <PendingButton
                type="submit"
                variant={variant}
                color={color}
                disabled={disabled}
                pending={mutation.isPending && pending}
              >
                {confirm}
              </PendingButton>
            )}
            {more}
          </Group>
        )}
      </Stack>
    </form>
  );
}

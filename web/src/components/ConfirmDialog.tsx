import { Button, Group, Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Dialog } from "./Dialog.tsx";
import { RequestForm, type RequestFormProps } from "./RequestForm.tsx";

interface DialogProps extends Pick<RequestFormProps, "confirm" | "cancel" | "children"> {
  opened: boolean;
  title: string;
  onCancel: () => void;
}

interface LocalAction {
  /** An action that sends no request. */
  onConfirm: () => void;
}

type ConfirmDialogProps = DialogProps & (RequestFormProps | LocalAction);

/** Explains the consequences of an action that cannot be undone, and requests a confirmation. */
export function ConfirmDialog({ opened, title, children, ...rest }: ConfirmDialogProps): ReactNode {
  const { confirm, cancel = "Cancel", onCancel } = rest;
  return (
    <Dialog opened={opened} onClose={onCancel} title={title} size="sm">
      {"onConfirm" in rest ? (
        <Stack>
          <p>{children}</p>
          <Group justify="flex-end">
            <Button onClick={onCancel}>{cancel}</Button>
            <Button variant="filled" color="red" onClick={rest.onConfirm}>
              {confirm}
            </Button>
          </Group>
        </Stack>
      ) : (
        <RequestForm {...rest} color="red">
          <p>{children}</p>
        </RequestForm>
      )}
    </Dialog>
  );
}

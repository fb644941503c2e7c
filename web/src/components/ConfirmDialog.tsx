import type { ReactNode } from "react";
import { Button } from "./Button.tsx";
import { Dialog } from "./Dialog.tsx";
import { ErrorNotice } from "./ErrorNotice.tsx";
import { Row, Stack } from "./Layout.tsx";

interface ConfirmDialogProps {
  opened: boolean;
  title: string;
  /** The consequences, explained for first-time users. */
  children: ReactNode;
  cancel?: string;
  confirm: string;
  pending?: string | false;
  failed?: string;
  error?: unknown;
  onCancel: () => void;
  onConfirm: () => void;
}

/** Asks for confirmation before an action that cannot be undone. */
export function ConfirmDialog(props: ConfirmDialogProps): ReactNode {
  const { opened, title, children, cancel = "Cancel", confirm, pending, failed, error } = props;
  return (
    <Dialog opened={opened} onClose={props.onCancel} title={title} size="sm">
      <Stack gap={4}>
        <p>{children}</p>
        {error !== null && error !== undefined && <ErrorNotice title={failed} error={error} />}
        <Row end>
          <Button onClick={props.onCancel}>{cancel}</Button>
          <Button variant="danger" pending={pending} onClick={props.onConfirm}>
            {confirm}
          </Button>
        </Row>
      </Stack>
    </Dialog>
  );
}

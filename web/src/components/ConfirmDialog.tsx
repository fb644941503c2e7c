import type { ReactNode } from "react";
import { Dialog } from "./Dialog.tsx";
import { RequestForm, type RequestFormProps } from "./RequestForm.tsx";

interface ConfirmDialogProps extends RequestFormProps {
  opened: boolean;
  title: string;
  onCancel: () => void;
}

/** Explains the consequences of an action that cannot be undone, and asks for confirmation. */
export const ConfirmDialog = ({
  opened,
  title,
  children,
  ...form
}: ConfirmDialogProps): ReactNode => (
  <Dialog opened={opened} onClose={form.onCancel} title={title} size="sm">
    <RequestForm {...form} color="red">
      <p>{children}</p>
    </RequestForm>
  </Dialog>
);

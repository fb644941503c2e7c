import { Drawer as MantineDrawer, Modal } from "@mantine/core";
import type { ReactNode } from "react";
import styles from "./Dialog.module.css";

interface DialogProps {
  opened: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
  size?: "sm" | "md" | "lg";
  /** False while leaving would lose something that cannot be had again. */
  closable?: boolean;
}

const WIDTHS = { sm: 420, md: 560, lg: 760 };

// `lockScroll` would add a <style> tag, which the content policy forbids; base.css does it instead.
const common = {
  lockScroll: false,
  overlayProps: { className: styles.overlay, backgroundOpacity: 0 },
  closeButtonProps: { "aria-label": "Close" },
} as const;

export function Dialog({
  opened,
  onClose,
  title,
  children,
  size = "md",
  closable = true,
}: DialogProps): ReactNode {
  return (
    <Modal
      {...common}
      opened={opened}
      onClose={onClose}
      title={title}
      size={WIDTHS[size]}
      centered
      withCloseButton={closable}
      closeOnEscape={closable}
      closeOnClickOutside={closable}
      classNames={{
        content: styles.content,
        header: styles.header,
        title: styles.title,
        body: styles.body,
        close: styles.close,
      }}
      transitionProps={{ duration: 120, transition: "fade" }}
    >
      {opened && <span data-dialog="open" hidden />}
      {children}
    </Modal>
  );
}

export function Drawer({ opened, onClose, title, children }: DialogProps): ReactNode {
  return (
    <MantineDrawer
      {...common}
      opened={opened}
      onClose={onClose}
      title={title}
      position="right"
      size="min(560px, 100vw)"
      classNames={{
        content: styles.drawer,
        header: styles.header,
        title: styles.title,
        body: styles.body,
        close: styles.close,
      }}
      transitionProps={{ duration: 140 }}
    >
      {opened && <span data-dialog="open" hidden />}
      {children}
    </MantineDrawer>
  );
}

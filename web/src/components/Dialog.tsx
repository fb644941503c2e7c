import { Drawer as MantineDrawer, Modal } from "@mantine/core";
import { type ReactNode, useCallback, useEffect, useId } from "react";
import styles from "./Dialog.module.css";

interface DialogProps {
  opened: boolean;
  onClose: () => void;
  title: string;
  children: ReactNode;
  size?: "sm" | "md" | "lg";
  /** False while closing would lose something that cannot be recovered. */
  closable?: boolean;
}

const WIDTHS = { sm: 420, md: 560, lg: 760 };

// `lockScroll` would add a <style> tag, which the Content-Security-Policy forbids; base.css locks scrolling
// instead.
const LOCK_SCROLL = false;

/**
 * The ids of the open dialogs, the topmost last. All of them receive Escape, but only the topmost one closes.
 */
const open: string[] = [];

function useTopmost(opened: boolean, onClose: () => void): () => void {
  const id = useId();
  useEffect(() => {
    if (!opened) return undefined;
    open.push(id);
    return () => {
      // Removed after all dialogs have received the key event that closed this one.
      setTimeout(() => open.splice(open.indexOf(id), 1));
    };
  }, [opened, id]);
  return useCallback(() => {
    if (open.at(-1) === id) onClose();
  }, [id, onClose]);
}

/** Built from parts, because the ready-made dialog contains a <header>, a second banner landmark. */
export function Dialog({
  opened,
  onClose,
  title,
  children,
  size = "md",
  closable = true,
}: DialogProps): ReactNode {
  const close = useTopmost(opened, onClose);
  return (
    <Modal.Root
      opened={opened}
      onClose={close}
      size={WIDTHS[size]}
      centered
      lockScroll={LOCK_SCROLL}
      closeOnEscape={closable}
      closeOnClickOutside={closable}
      transitionProps={{ duration: 120, transition: "fade" }}
      classNames={{ overlay: styles.overlay, content: styles.content }}
    >
      <Modal.Overlay backgroundOpacity={0} />
      <Modal.Content>
        <div className={styles.header}>
          <Modal.Title className={styles.title}>{title}</Modal.Title>
          {closable && <Modal.CloseButton className={styles.close} aria-label="Close" />}
        </div>
        <Modal.Body className={styles.body}>
          {opened && <span data-dialog="open" hidden />}
          {children}
        </Modal.Body>
      </Modal.Content>
    </Modal.Root>
  );
}

export function Drawer({ opened, onClose, title, children }: DialogProps): ReactNode {
  const close = useTopmost(opened, onClose);
  return (
    <MantineDrawer.Root
      opened={opened}
      onClose={close}
      position="right"
      size="min(560px, 100vw)"
      lockScroll={LOCK_SCROLL}
      transitionProps={{ duration: 140 }}
      classNames={{ overlay: styles.overlay, content: styles.drawer }}
    >
      <MantineDrawer.Overlay backgroundOpacity={0} />
      <MantineDrawer.Content>
        <div className={styles.header}>
          <MantineDrawer.Title className={styles.title}>{title}</MantineDrawer.Title>
          <MantineDrawer.CloseButton className={styles.close} aria-label="Close" />
        </div>
        <MantineDrawer.Body className={styles.body}>
          {opened && <span data-dialog="open" hidden />}
          {children}
        </MantineDrawer.Body>
      </MantineDrawer.Content>
    </MantineDrawer.Root>
  );
}

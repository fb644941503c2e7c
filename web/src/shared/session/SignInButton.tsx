import { Button, type ButtonProps } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { ReactNode } from "react";
import { Dialog } from "../../components/Dialog.tsx";
import { SignIn } from "./SignIn.tsx";

/** Signs in without leaving the page. The button and its dialog disappear once there is a session. */
export function SignInButton({
  children,
  ...look
}: Pick<ButtonProps, "size" | "variant" | "children">): ReactNode {
  const [isOpen, { open, close }] = useDisclosure();
  return (
    <>
      <Button variant="filled" {...look} onClick={open}>
        {children}
      </Button>
      <Dialog opened={isOpen} onClose={close} title="Sign in to Purser" size="sm">
        {isOpen && <SignIn />}
      </Dialog>
    </>
  );
}

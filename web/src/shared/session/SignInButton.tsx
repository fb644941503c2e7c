import { type ReactNode, useState } from "react";
import { Button, type ButtonProps } from "../../components/Button.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { SignIn } from "./SignIn.tsx";

/** Signs in without leaving the page. The button and its dialog disappear once there is a session. */
export function SignInButton({
  children,
  ...look
}: Pick<ButtonProps, "size" | "variant" | "children">): ReactNode {
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <Button
        variant="primary"
        {...look}
        onClick={() => {
          setOpen(true);
        }}
      >
        {children}
      </Button>
      <Dialog
        opened={isOpen}
        onClose={() => {
          setOpen(false);
        }}
        title="Sign in with your wallet"
        size="sm"
      >
        {isOpen && <SignIn />}
      </Dialog>
    </>
  );
}

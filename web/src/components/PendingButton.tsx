import { Button, type ButtonProps, type ElementProps } from "@mantine/core";
import type { ReactNode, Ref } from "react";

interface PendingButtonProps extends ButtonProps, ElementProps<"button", keyof ButtonProps> {
  /** While set, the button shows this text, ignores presses and keeps the focus. */
  pending: string | false;
  ref?: Ref<HTMLButtonElement>;
}

export function PendingButton({
  pending,
  children,
  onClick,
  ...rest
}: PendingButtonProps): ReactNode {
  return (
    <Button
      {...rest}
      aria-disabled={pending !== false || undefined}
      onClick={(event) => {
        if (pending === false) onClick?.(event);
        else event.preventDefault();
      }}
    >
      {pending === false ? children : pending}
    </Button>
  );
}

interface MutationButtonProps extends Omit<PendingButtonProps, "pending" | "onClick"> {
  mutation: { isPending: boolean; mutate: () => void };
  /** Shown while the request runs. */
  pending: string;
}

/** A button that sends one request. */
export const MutationButton = ({ mutation, pending, ...rest }: MutationButtonProps): ReactNode => (
  <PendingButton
    {...rest}
    pending={mutation.isPending && pending}
    onClick={() => {
      mutation.mutate();
    }}
  />
);

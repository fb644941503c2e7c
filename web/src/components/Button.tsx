import type { ButtonHTMLAttributes, ReactNode, Ref } from "react";
import { Link, type LinkProps } from "react-router";
import styles from "./Button.module.css";

interface Look {
  variant?: "primary" | "secondary" | "ghost" | "danger" | "icon";
  size?: "small" | "large";
  block?: boolean;
}

const classes = ({ variant = "secondary", size, block }: Look, extra?: string): string =>
  [styles.button, styles[variant], size && styles[size], block === true && styles.block, extra]
    .filter(Boolean)
    .join(" ");

export interface ButtonProps extends Look, ButtonHTMLAttributes<HTMLButtonElement> {
  /** While set, the button shows this text, ignores presses and keeps the focus. */
  pending?: string | false;
  ref?: Ref<HTMLButtonElement>;
}

export function Button({
  variant,
  size,
  block,
  pending,
  className,
  children,
  onClick,
  disabled,
  ...rest
}: ButtonProps): ReactNode {
  const isPending = typeof pending === "string";
  return (
    <button
      type="button"
      {...rest}
      disabled={disabled}
      aria-disabled={isPending || undefined}
      className={classes(
        { variant, size, block },
        [className, isPending && styles.pending].filter(Boolean).join(" "),
      )}
      onClick={(event) => {
        if (isPending) event.preventDefault();
        else onClick?.(event);
      }}
    >
      {isPending ? pending : children}
    </button>
  );
}

export function LinkButton({
  variant,
  size,
  block,
  className,
  ...rest
}: Look & LinkProps): ReactNode {
  return <Link {...rest} className={classes({ variant, size, block }, className)} />;
}

/** For addresses outside the app: documents on the same host, explorers. */
export function AnchorButton({
  variant,
  size,
  block,
  href,
  children,
  external,
}: Look & { href: string; children: ReactNode; external?: boolean }): ReactNode {
  return (
    <a
      href={href}
      className={classes({ variant, size, block })}
      {...(external === true ? { target: "_blank", rel: "noreferrer" } : {})}
    >
      {children}
    </a>
  );
}

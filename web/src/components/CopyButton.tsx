import { ActionIcon, Button, type ButtonProps } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import { type ReactNode, useEffect } from "react";
import { CheckIcon, CopyIcon } from "./icons.tsx";

const FEEDBACK_MS = 1_800;

interface CopyButtonProps extends Pick<ButtonProps, "variant" | "className"> {
  value: string;
  /** Names the copied value in the button's label: "address", "key". */
  what: string;
  /** Visible text; without it the button is an icon. */
  text?: string;
}

export function CopyButton({ value, what, text, ...look }: CopyButtonProps): ReactNode {
  const { copy, copied, error, reset } = useClipboard({ timeout: FEEDBACK_MS });
  // The hook forgets a success by itself, but not an error.
  useEffect(() => {
    if (!error) return undefined;
    const timer = setTimeout(reset, FEEDBACK_MS);
    return () => {
      clearTimeout(timer);
    };
  }, [error, reset]);
  const feedback = copied ? "Copied" : error ? "This browser does not allow copying" : "";
  const icon = copied ? <CheckIcon size={16} /> : <CopyIcon size={16} />;
  const onClick = (): void => {
    copy(value);
  };
  return (
    <>
      {text === undefined ? (
        <ActionIcon
          {...look}
          size="sm"
          aria-label={`Copy ${what}`}
          title={feedback || `Copy ${what}`}
          onClick={onClick}
        >
          {icon}
        </ActionIcon>
      ) : (
        <Button {...look} size="xs" onClick={onClick}>
          {icon}
          {feedback || text}
        </Button>
      )}
      <span className="sr-only" role="status">
        {feedback}
      </span>
    </>
  );
}

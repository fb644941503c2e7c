import { type ReactNode, useEffect, useState } from "react";
import { Button, type ButtonProps } from "./Button.tsx";
import { CheckIcon, CopyIcon } from "./icons.tsx";

interface CopyButtonProps extends Pick<ButtonProps, "variant" | "size" | "className" | "block"> {
  value: string;
  /** Names the copied value in the button's label: "address", "key". */
  what: string;
  /** Visible text; without it the button is an icon. */
  text?: string;
  onCopied?: () => void;
}

async function copy(value: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(value);
    return true;
  } catch {
    return false;
  }
}

export function CopyButton({
  value,
  what,
  text,
  onCopied,
  variant,
  size,
  ...rest
}: CopyButtonProps): ReactNode {
  const [state, setState] = useState<"idle" | "done" | "failed">("idle");
  useEffect(() => {
    if (state === "idle") return undefined;
    const timer = setTimeout(() => {
      setState("idle");
    }, 1_800);
    return () => {
      clearTimeout(timer);
    };
  }, [state]);
  const onCopy = async (): Promise<void> => {
    const isDone = await copy(value);
    setState(isDone ? "done" : "failed");
    if (isDone) onCopied?.();
  };
  const feedback =
    state === "done" ? "Copied" : state === "failed" ? "This browser does not allow copying" : "";
  return (
    <>
      <Button
        {...rest}
        variant={variant ?? (text === undefined ? "icon" : "secondary")}
        size={size ?? "small"}
        aria-label={text === undefined ? `Copy ${what}` : undefined}
        title={text === undefined ? feedback || `Copy ${what}` : undefined}
        onClick={() => void onCopy()}
      >
        {state === "done" ? <CheckIcon size={16} /> : <CopyIcon size={16} />}
        {text !== undefined && (feedback || text)}
      </Button>
      <span className="sr-only" role="status">
        {feedback}
      </span>
    </>
  );
}

import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Button } from "../../components/Button.tsx";
import { TrashIcon } from "../../components/icons.tsx";
import styles from "./AllowlistEditor.module.css";
import type { AllowlistDraft } from "./api.ts";

interface PayeeRowProps {
  entry: AllowlistDraft;
  onRename: (label: string) => void;
  onRemove: () => void;
}

export function PayeeRow({ entry, onRename, onRemove }: PayeeRowProps): ReactNode {
  return (
    <li className={styles.entry}>
      <input
        className={styles.label}
        aria-label={`Label of ${entry.address}`}
        placeholder="No label"
        maxLength={80}
        value={entry.label}
        onChange={(event) => {
          onRename(event.currentTarget.value);
        }}
      />
      <Address value={entry.address} copy={false} />
      <Button
        variant="icon"
        size="small"
        aria-label={`Remove ${entry.label || entry.address}`}
        onClick={onRemove}
      >
        <TrashIcon size={16} />
      </Button>
    </li>
  );
}

import { TextInput } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useRef, useState } from "react";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { checkAddress } from "../../lib/address.ts";
import { api } from "../../lib/api.ts";
import type { SiteLookup } from "../../lib/wire.ts";
import styles from "./AllowlistEditor.module.css";
import { FoundSite } from "./FoundSite.tsx";
import type { AllowlistDraft } from "./rules.ts";

interface AddPayeeProps {
  /** The agent whose allowlist it is; a site's terms are requested as this agent would. None while it is created. */
  agentId?: string;
  has: (address: string) => boolean;
  onAdd: (entry: AllowlistDraft) => void;
}

/**
 * A field for one payee: its address, with the checksum checked, or a website, which names the address. Enter adds it, and does
 * not submit the form around it.
 */
export function AddPayee({ agentId, has, onAdd }: AddPayeeProps): ReactNode {
  const [text, setText] = useInputState("");
  const [label, setLabel] = useInputState("");
  const [error, setError] = useState<string>();
  const field = useRef<HTMLInputElement>(null);
  const lookup = useMutation({
    mutationFn: (url: string) =>
      api.post<SiteLookup>(
        `/api/${agentId === undefined ? "" : `agents/${agentId}/`}allowlist/lookup`,
        { url },
      ),
  });

  const addEntry = (entry: AllowlistDraft): void => {
    onAdd({ ...entry, label: label.trim() || entry.label });
    setText("");
    setLabel("");
    lookup.reset();
    field.current?.focus();
  };
  const add = async (): Promise<void> => {
    if (lookup.isPending) return;
    const url = urlIn(text);
    if (url !== undefined) return lookup.mutate(url);
    if (!/^\s*0x/i.test(text))
      return setError("Enter a website such as api.example.com/data, or an address (0x…).");
    const check = await checkAddress(text);
    if (!check.ok) return setError(check.reason);
    if (has(check.address)) return setError("This address is already on the list.");
    addEntry({ address: check.address, label: "" });
  };
  const onEnter = (event: React.KeyboardEvent): void => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    void add();
  };

  return (
    <div>
      <div className={styles.add}>
        <TextInput
          ref={field}
          label="Website or address"
          description="A website is read once for its price and its payee. Nothing is paid."
          inputWrapperOrder={["label", "input", "error", "description"]}
          placeholder="api.example.com/data or 0x…"
          value={text}
          error={error}
          onKeyDown={onEnter}
          onChange={(event) => {
            setText(event);
            setError(undefined);
            lookup.reset();
          }}
        />
        <TextInput
          label="Label"
          placeholder="Weather API"
          maxLength={80}
          value={label}
          onKeyDown={onEnter}
          onChange={setLabel}
        />
        <PendingButton
          className={styles.button}
          pending={lookup.isPending && "Reading…"}
          onClick={() => void add()}
        >
          Add
        </PendingButton>
      </div>
      <div aria-live="polite" className={styles.found}>
        {lookup.error && (
          <ErrorNotice title="This page is not asking for payment" error={lookup.error} />
        )}
        {lookup.data && <FoundSite found={lookup.data} onPick={addEntry} />}
      </div>
    </div>
  );
}

/** People type a host; https is what a paid site needs. Undefined for what is no website. */
function urlIn(typed: string): string | undefined {
  const text = typed.trim();
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(text)) return text;
  if (/^(localhost|127\.0\.0\.1)(:|\/|$)/.test(text)) return `http://${text}`;
  return /^[^\s/]+\.[^\s/]/.test(text) ? `https://${text}` : undefined;
}

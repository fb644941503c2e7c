import { Textarea } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Row, Stack } from "../../components/Layout.tsx";
import styles from "./AllowlistEditor.module.css";
import type { AllowlistDraft } from "./rules.ts";
import { PasteProblems } from "./PasteProblems.tsx";
import { parseAllowlist, type PasteResult } from "./parse-allowlist.ts";

interface PasteManyProps {
  opened: boolean;
  onClose: () => void;
  known: readonly AllowlistDraft[];
  onAdd: (entries: AllowlistDraft[]) => void;
}

export function PasteMany({ opened, onClose, known, onAdd }: PasteManyProps): ReactNode {
  const [text, setText] = useState("");
  const [result, setResult] = useState<PasteResult>();

  const close = (): void => {
    setText("");
    setResult(undefined);
    onClose();
  };
  const read = async (): Promise<void> => {
    const read = await parseAllowlist(text, known);
    if (read.problems.length === 0 && read.entries.length > 0) {
      onAdd(read.entries);
      close();
    } else {
      setResult(read);
    }
  };
  const entries = result?.entries ?? [];
  return (
    <Dialog opened={opened} onClose={close} title="Paste many addresses" size="lg">
      <Stack gap={4}>
        <Textarea
          label="One address per line"
          description="Add a label before or after the address. Lines that begin with # are ignored."
          placeholder={
            "0x8ba1f109551bD432803012645Ac136ddd64DBA72 Weather API\n0xdD2FD4581271e230360230F9337D5c0430Bf44C0 News"
          }
          minRows={7}
          rows={7}
          spellCheck={false}
          classNames={{ input: styles.paste }}
          value={text}
          onChange={(event) => {
            setText(event.currentTarget.value);
            setResult(undefined);
          }}
        />
        {result && <PasteProblems result={result} />}
        <Row end>
          <Button onClick={close}>Cancel</Button>
          {entries.length > 0 ? (
            <Button
              variant="primary"
              onClick={() => {
                onAdd(entries);
                close();
              }}
            >
              Add {entries.length} valid payees
            </Button>
          ) : (
            <Button variant="primary" disabled={text.trim() === ""} onClick={() => void read()}>
              Check and add
            </Button>
          )}
        </Row>
      </Stack>
    </Dialog>
  );
}

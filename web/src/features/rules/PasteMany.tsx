import { Button, Group, Stack, Text, Textarea } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import { type ReactNode, useState } from "react";
import { Dialog } from "../../components/Dialog.tsx";
import { Note } from "../../components/Layout.tsx";
import styles from "./AllowlistEditor.module.css";
import { parseAllowlist, type PasteResult } from "./parse-allowlist.ts";
import type { AllowlistDraft } from "./rules.ts";

interface PasteManyProps {
  opened: boolean;
  onClose: () => void;
  known: readonly AllowlistDraft[];
  onAdd: (entries: AllowlistDraft[]) => void;
}

export function PasteMany({ opened, onClose, known, onAdd }: PasteManyProps): ReactNode {
  const [text, setText] = useInputState("");
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
      <Stack>
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
            setText(event);
            setResult(undefined);
          }}
        />
        {result && <PasteProblems result={result} />}
        <Group justify="flex-end">
          <Button onClick={close}>Cancel</Button>
          {entries.length > 0 ? (
            <Button
              variant="filled"
              onClick={() => {
                onAdd(entries);
                close();
              }}
            >
              Add {entries.length} valid payees
            </Button>
          ) : (
            <Button variant="filled" disabled={text.trim() === ""} onClick={() => void read()}>
              Check and add
            </Button>
          )}
        </Group>
      </Stack>
    </Dialog>
  );
}

/** The lines that could not be read, with the reasons. */
function PasteProblems({ result }: { result: PasteResult }): ReactNode {
  const { entries, problems, repeated } = result;
  return (
    <Note color="yellow">
      <Stack gap="xs">
        <p role="status">
          {entries.length} can be added, {problems.length} cannot be read
          {repeated > 0 && `, ${repeated} repeated`}.
        </p>
        <ul className={styles.problems}>
          {problems.map(({ line, text, reason }) => (
            <li key={line}>
              Line {line}:{" "}
              <Text span c="dimmed" size="sm">
                {text}
              </Text>{" "}
              <span>{reason}</span>
            </li>
          ))}
        </ul>
      </Stack>
    </Note>
  );
}

import type { ReactNode } from "react";
import { Muted, Note, Stack } from "../../components/Layout.tsx";
import styles from "./AllowlistEditor.module.css";
import type { PasteResult } from "./parse-allowlist.ts";

/** The lines that could not be read, with the reasons. */
export function PasteProblems({ result }: { result: PasteResult }): ReactNode {
  const { entries, problems, repeated } = result;
  return (
    <Note tone="warn">
      <Stack gap={2}>
        <p role="status">
          {entries.length} can be added, {problems.length} cannot be read
          {repeated > 0 && `, ${repeated} repeated`}.
        </p>
        <ul className={styles.problems}>
          {problems.map(({ line, text, reason }) => (
            <li key={line}>
              Line {line}: <Muted>{text}</Muted> <span>{reason}</span>
            </li>
          ))}
        </ul>
      </Stack>
    </Note>
  );
}

import { Button, Group, Paper, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Changes } from "../../components/Changes.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import type { CheckedDraft } from "./members.ts";
import styles from "./Teams.module.css";

interface SaveMembersProps {
  checked: CheckedDraft;
  save: { isPending: boolean; error: unknown; mutate: () => void };
  onDiscard: () => void;
}

/** The list before and after, and who must sign it. */
export function SaveMembers({ checked, save, onDiscard }: SaveMembersProps): ReactNode {
  const { changes, fault, signers, isEnough } = checked;
  return (
    <Paper component="section" aria-label="Change the members?" className={styles.bar}>
      <Changes changes={changes} />
      {fault === undefined ? (
        <Text c="dimmed" size="sm">
          {signers}
        </Text>
      ) : (
        <p role="alert">{fault}</p>
      )}
      {save.error !== null && (
        <ErrorNotice title="The members were not changed" error={save.error} />
      )}
      <Group justify="flex-end">
        <Button onClick={onDiscard}>Discard</Button>
        <MutationButton
          variant="filled"
          mutation={save}
          disabled={fault !== undefined}
          pending="Waiting for your signature…"
        >
          {isEnough ? "Sign and save" : "Sign and ask the others"}
        </MutationButton>
      </Group>
    </Paper>
  );
}

import { Button, Group, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Changes } from "../../components/Changes.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Section } from "../../components/Layout.tsx";
import { MutationButton } from "../../components/PendingButton.tsx";
import type { Change } from "../../lib/orders/terms.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import { type RulesDraft, describeRules } from "./rules.ts";
import styles from "./SaveRules.module.css";

interface SaveRulesProps {
  draft: RulesDraft;
  changes: Change[];
  isBroken: boolean;
  /** A rule is loosened, so the owner's wallet has to sign. */
  isSigned: boolean;
  save: { mutate: () => void; isPending: boolean; error: unknown };
  onDiscard: () => void;
}

/** Stays visible below the form: lists every change, and describes the resulting rules. */
export function SaveRules(props: SaveRulesProps): ReactNode {
  const { draft, changes, isBroken, isSigned, save, onDiscard } = props;
  const { second } = useOwner();
  return (
    <div className={styles.bar}>
      <Section title="Save these changes?">
        <Stack>
          {!isBroken && <Changes changes={changes} />}
          {isBroken ? (
            <p role="alert">Correct the marked fields first.</p>
          ) : (
            <Text c="dimmed" size="sm">
              {describeRules(draft).join(" ")}
            </Text>
          )}
          {save.error !== null && (
            <ErrorNotice title="The rules were not saved" error={save.error} />
          )}
          {!isBroken && (
            <Text c="dimmed" size="sm">
              {isSigned
                ? second === null
                  ? "These rules allow more than before, so your wallet must sign them."
                  : "These rules allow more than before, so the owner's wallet must sign them."
                : "Tighter limits apply immediately, without your wallet."}
            </Text>
          )}
          <Group justify="flex-end">
            <Button onClick={onDiscard}>Discard</Button>
            {(!isSigned || second === null) && (
              <MutationButton
                variant="filled"
                disabled={isBroken}
                mutation={save}
                pending={isSigned ? "Sign in your wallet…" : "Saving…"}
              >
                {isSigned ? "Sign and save changes" : "Save changes"}
              </MutationButton>
            )}
          </Group>
        </Stack>
      </Section>
    </div>
  );
}

import { Button, Group, Paper, Stack, Text } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import type { ReactNode } from "react";
import { Changes } from "../../components/Changes.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { ChevronIcon } from "../../components/icons.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import type { Change } from "../../lib/orders/terms.ts";
import { plural } from "../../lib/plural.ts";
import { useRights } from "../../shared/session/OwnerOnly.tsx";
import { type RulesDraft, describeRules } from "./rules.ts";
import styles from "./SaveRules.module.css";

interface SaveRulesProps {
  draft: RulesDraft;
  changes: Change[];
  isBroken: boolean;
  /** A rule is loosened, so the owner's wallet has to sign. */
  isSigned: boolean;
  save: { mutate: (isOnScreen: boolean) => void; isPending: boolean; error: unknown };
  onDiscard: () => void;
}

/**
 * A bar that stays visible below the form. Above it are the changes and the resulting rules; on a phone only after a press,
 * because they would cover the form.
 */
export function SaveRules(props: SaveRulesProps): ReactNode {
  const { draft, changes, isBroken, isSigned, save, onDiscard } = props;
  const rights = useRights();
  const isRefused = rights === "read" || (rights === "tighten" && isSigned);
  const [isOpen, { toggle }] = useDisclosure(!matchMedia("(max-width: 900px)").matches);
  return (
    <Paper component="section" aria-label="Save these changes?" className={styles.bar}>
      {isOpen && !isBroken && (
        <Stack gap="sm" className={styles.details}>
          <Changes changes={changes} />
          <Text c="dimmed" size="sm">
            {describeRules(draft).join(" ")}
          </Text>
          {!isRefused && (
            <Text c="dimmed" size="sm">
              {isSigned
                ? "These rules allow more than before, so you must sign them."
                : "Tighter limits apply immediately, without your wallet."}
            </Text>
          )}
        </Stack>
      )}
      {isRefused && !isBroken && (
        <Text c="dimmed" size="sm">
          {rights === "read"
            ? "You are viewer in this team, so you cannot save changes."
            : "These rules allow more than before, so the owner must sign them."}
        </Text>
      )}
      {save.error !== null && <ErrorNotice title="The rules were not saved" error={save.error} />}
      <Group justify="space-between" wrap="nowrap">
        {isBroken ? (
          <p role="alert">Correct the marked fields first.</p>
        ) : (
          <Button
            variant="subtle"
            px="xs"
            aria-expanded={isOpen}
            rightSection={<ChevronIcon size={14} className={styles.chevron} />}
            onClick={toggle}
          >
            {plural(changes.length, "change")}
            <span className="sr-only"> not saved</span>
          </Button>
        )}
        <Group wrap="nowrap">
          <Button px="sm" onClick={onDiscard}>
            Discard
          </Button>
          {!isRefused && (
            <PendingButton
              px="sm"
              variant="filled"
              disabled={isBroken}
              pending={save.isPending && (isSigned ? "Waiting for your signature…" : "Saving…")}
              onClick={() => {
                save.mutate(isOpen);
              }}
            >
              {isSigned ? "Sign and save" : "Save"}
              <span className={styles.wide}> changes</span>
            </PendingButton>
          )}
        </Group>
      </Group>
    </Paper>
  );
}

import type { ReactNode } from "react";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Row, Section, Stack } from "../../components/Layout.tsx";
import { type RuleChange, type RulesDraft, tellRules } from "./rules.ts";
import styles from "./SaveRules.module.css";

interface SaveRulesProps {
  draft: RulesDraft;
  changes: RuleChange[];
  isBroken: boolean;
  save: { mutate: () => void; isPending: boolean; error: unknown };
  onDiscard: () => void;
}

/** Follows the form down the page: every change, and the rules as they would be, in words. */
export function SaveRules({
  draft,
  changes,
  isBroken,
  save,
  onDiscard,
}: SaveRulesProps): ReactNode {
  return (
    <div className={styles.bar}>
      <Section title="Save these changes?">
        <Stack gap={4}>
          {!isBroken && <Changes changes={changes} />}
          {isBroken ? (
            <p role="alert">Correct the marked fields first.</p>
          ) : (
            <p className={styles.story}>{tellRules(draft).join(" ")}</p>
          )}
          {save.error !== null && (
            <ErrorNotice title="The rules were not all saved" error={save.error} />
          )}
          <Row end>
            <Button onClick={onDiscard}>Discard</Button>
            <Button
              variant="primary"
              disabled={isBroken}
              pending={save.isPending && "Saving…"}
              onClick={() => {
                save.mutate();
              }}
            >
              Save changes
            </Button>
          </Row>
        </Stack>
      </Section>
    </div>
  );
}

export function Changes({ changes }: { changes: RuleChange[] }): ReactNode {
  return (
    <ul className={styles.changes} aria-label="Changes">
      {changes.map((change) => (
        <li key={`${change.what}${change.before}${change.after}`}>
          <span className={styles.what}>{change.what}</span>
          {change.before !== "" && <del>{change.before}</del>}
          {change.before !== "" && change.after !== "" && <span aria-hidden="true">→</span>}
          {change.after !== "" && <ins>{change.after}</ins>}
        </li>
      ))}
    </ul>
  );
}

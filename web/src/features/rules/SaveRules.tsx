import type { ReactNode } from "react";
import { Button } from "../../components/Button.tsx";
import { Changes } from "../../components/Changes.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Muted, Row, Section, Stack } from "../../components/Layout.tsx";
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
export function SaveRules({
  draft,
  changes,
  isBroken,
  isSigned,
  save,
  onDiscard,
}: SaveRulesProps): ReactNode {
  const { second } = useOwner();
  return (
    <div className={styles.bar}>
      <Section title="Save these changes?">
        <Stack gap={4}>
          {!isBroken && <Changes changes={changes} />}
          {isBroken ? (
            <p role="alert">Correct the marked fields first.</p>
          ) : (
            <p className={styles.story}>{describeRules(draft).join(" ")}</p>
          )}
          {save.error !== null && (
            <ErrorNotice title="The rules were not saved" error={save.error} />
          )}
          {!isBroken && (
            <p>
              <Muted>
                {isSigned
                  ? second === null
                    ? "These rules allow more than before, so your wallet must sign them."
                    : "These rules allow more than before, so the owner's wallet must sign them."
                  : "Tighter limits apply immediately, without your wallet."}
              </Muted>
            </p>
          )}
          <Row end>
            <Button onClick={onDiscard}>Discard</Button>
            <Button
              variant="primary"
              disabled={isBroken}
              pending={save.isPending && (isSigned ? "Sign in your wallet…" : "Saving…")}
              onClick={() => {
                save.mutate();
              }}
            >
              {isSigned ? "Sign and save changes" : "Save changes"}
            </Button>
          </Row>
        </Stack>
      </Section>
    </div>
  );
}

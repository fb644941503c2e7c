import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Note, Row, Section, Stack } from "../../components/Layout.tsx";
import { queryClient } from "../../lib/query-client.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent } from "../../lib/wire.ts";
import { agentQuery, replaceAllowlist, updateAgent } from "./api.ts";
import styles from "./EditRules.module.css";
import {
  checkRules,
  diffRules,
  requestFor,
  type RuleChange,
  type RulesDraft,
  rulesOf,
  tellRules,
} from "./rules.ts";
import { type PayeePicker, RulesFields } from "./RulesFields.tsx";

/** Edits stay in the browser until saved; what saving would do is shown before it is done. */
export function EditRules({ agent, picker }: { agent: Agent; picker?: PayeePicker }): ReactNode {
  // What the form began with. A change made elsewhere meanwhile must be seen, not overwritten.
  const [base, setBase] = useState(() => rulesOf(agent));
  const [draft, setDraft] = useState<RulesDraft>(base);
  const current = rulesOf(agent);
  const changes = diffRules(base, draft);
  const changedElsewhere = diffRules(base, current);
  const errors = checkRules(draft, 0);
  const isBroken = Object.keys(errors).length > 0;

  const save = useMutation({
    mutationFn: async () => {
      const request = requestFor(base, draft);
      if (request.agent) await updateAgent(agent.id, request.agent);
      if (request.allowlist) await replaceAllowlist(agent.id, request.allowlist);
      return queryClient.fetchQuery({ ...agentQuery(agent.id), staleTime: 0 });
    },
    onSuccess: (saved) => {
      const next = rulesOf(saved);
      setBase(next);
      setDraft(next);
      notifications.show({ message: "The rules are saved and in force." });
    },
    onSettled: invalidate.afterRules,
  });

  if (agent.status === "archived")
    return <Note>This agent is archived; its rules cannot be changed.</Note>;
  const reset = (): void => {
    setBase(current);
    setDraft(current);
    save.reset();
  };
  return (
    <Stack gap={5}>
      {changedElsewhere.length > 0 && !save.isPending && (
        <Note tone="warn">
          <Stack gap={2}>
            <p>These rules were changed elsewhere since you opened them.</p>
            <Changes changes={changedElsewhere} />
            <Row>
              <Button size="small" onClick={reset}>
                Show the current rules
              </Button>
            </Row>
          </Stack>
        </Note>
      )}
      <RulesFields draft={draft} errors={errors} onChange={setDraft} picker={picker} />
      {(changes.length > 0 || save.error !== null) && (
        <div className={styles.bar}>
          <Section title="Save these changes?">
            <Stack gap={4}>
              {!isBroken && <Changes changes={changes} />}
              {isBroken ? (
                <p role="alert">Correct the marked fields first.</p>
              ) : (
                <p className={styles.story}>{tellRules(draft).join(" ")}</p>
              )}
              {save.error && (
                <ErrorNotice title="The rules were not all saved" error={save.error} />
              )}
              <Row end>
                <Button onClick={reset}>Discard</Button>
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
      )}
    </Stack>
  );
}

function Changes({ changes }: { changes: RuleChange[] }): ReactNode {
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

import { Button, Group, Stack } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Changes } from "../../components/Changes.tsx";
import { Note } from "../../components/Layout.tsx";
import { useDraft } from "../../lib/drafts.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { Agent } from "../../lib/wire.ts";
import type { PayeePicker } from "./AllowlistEditor.tsx";
import { changeRules } from "./api.ts";
import {
  checkRules,
  completeRules,
  diffRules,
  needsSignature,
  requestFor,
  type RulesDraft,
  rulesOf,
} from "./rules.ts";
import { RulesFields } from "./RulesFields.tsx";
import { SaveRules } from "./SaveRules.tsx";

interface EditRulesProps {
  agent: Agent;
  /** Reads the agent from the server after the change. */
  reload: () => Promise<unknown>;
  picker?: PayeePicker;
}

/** Edits stay in this tab until saved; the changes are shown before saving. */
export function EditRules({ agent, reload, picker }: EditRulesProps): ReactNode {
  // With the rules when the editing began. A change made elsewhere meanwhile must be shown, not overwritten.
  const [edited, setEdited, drop] = useDraft<{ base: RulesDraft; draft: RulesDraft }>(
    `rules-${agent.id}`,
  );
  const current = rulesOf(agent);
  const base = edited ? completeRules(edited.base) : current;
  const draft = edited ? completeRules(edited.draft) : current;
  const changes = diffRules(base, draft);
  const changedElsewhere = diffRules(base, current);
  const errors = checkRules(draft, 0);
  const isBroken = Object.keys(errors).length > 0;

  const save = useMutation({
    mutationFn: async (isOnScreen: boolean) => {
      const request = requestFor(base, draft);
      const title = `Change the rules of ${agent.name}`;
      await changeRules(agent, request, { title, isOnScreen });
      await reload();
    },
    onSuccess: () => {
      drop();
      notifications.show({ message: "The rules are saved and apply now." });
    },
    onSettled: invalidate.afterRules,
  });

  if (agent.status === "archived")
    return <Note>This agent is archived. Its rules cannot be changed.</Note>;
  const reset = (): void => {
    drop();
    save.reset();
  };
  return (
    <Stack gap="lg">
      {changedElsewhere.length > 0 && !save.isPending && (
        <Note color="yellow">
          <Stack gap="xs">
            <p>These rules changed after you opened this page.</p>
            <Changes changes={changedElsewhere} />
            <Group>
              <Button size="xs" onClick={reset}>
                Show the current rules
              </Button>
            </Group>
          </Stack>
        </Note>
      )}
      <RulesFields
        draft={draft}
        errors={errors}
        onChange={(next) => {
          setEdited({ base, draft: next });
        }}
        picker={picker}
        agentId={agent.id}
      />
      {(changes.length > 0 || isBroken || save.error !== null) && (
        <SaveRules
          draft={draft}
          changes={changes}
          isBroken={isBroken}
          isSigned={!isBroken && needsSignature(current, draft)}
          save={save}
          onDiscard={reset}
        />
      )}
    </Stack>
  );
}

import { Stack, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useEffect, useState } from "react";
import { useSearchParams } from "react-router";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Section } from "../../components/Layout.tsx";
import { PendingButton } from "../../components/PendingButton.tsx";
import { serverNowMs } from "../../lib/clock.ts";
import { useDraft } from "../../lib/drafts.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { CreatedAgent } from "../../lib/wire.ts";
import { useNetwork } from "../../shared/info.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import type { PayeePicker } from "./AllowlistEditor.tsx";
import { createAgent } from "./api.ts";
import styles from "./CreateAgent.module.css";
import { checkRules, completeRules, creationOf, type RulesDraft, describeRules } from "./rules.ts";
import { RulesFields } from "./RulesFields.tsx";
import { TemplateChoice } from "./TemplateChoice.tsx";
import {
  fill,
  type SuggestedPayee,
  type Template,
  templateIn,
  TEMPLATES,
  tickSellers,
} from "./templates.ts";

export function CreateAgent({
  onCreated,
  picker,
  suggested,
}: {
  onCreated: (created: CreatedAgent) => void;
  picker?: PayeePicker;
  /** Undefined while they load. */
  suggested: readonly SuggestedPayee[] | undefined;
}): ReactNode {
  const [typed, setDraft, drop] = useDraft<RulesDraft>(`new-agent-${useOwner().address}`);
  const draft = completeRules(typed);
  const [isTried, setTried] = useState(false);
  /** A template whose settings are in the form, and whose sellers are not ticked yet. */
  const [chosen, setChosen] = useState<{ template: Template | undefined }>();
  const network = useNetwork()?.id ?? "";
  const errors = checkRules(draft, serverNowMs());
  const hasErrors = Object.keys(errors).length > 0;

  const choose = (template: Template | undefined): void => {
    setTried(false);
    setDraft(fill(draft, template, suggested ?? []));
    setChosen(suggested ? undefined : { template });
  };
  useWantedTemplate(choose);
  useEffect(() => {
    if (!chosen || !suggested) return;
    setDraft(tickSellers(draft, chosen.template, suggested));
    setChosen(undefined);
    // Once for a choice, and not when the form changes.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [chosen, suggested]);

  const create = useMutation({
    mutationFn: () => createAgent(creationOf(draft), network),
    onSuccess: (created) => {
      drop();
      onCreated(created);
      void invalidate.afterRules();
    },
    // The response contains the key, which must not stay in memory after this screen.
    gcTime: 0,
  });

  const onSubmit = (event: React.FormEvent): void => {
    event.preventDefault();
    setTried(true);
    if (hasErrors)
      document
        .querySelector<HTMLInputElement>(
          "form [aria-invalid=true], form input:placeholder-shown[required]",
        )
        ?.focus();
    else if (!create.isPending && !chosen) create.mutate();
  };

  return (
    <form className={styles.root} noValidate onSubmit={onSubmit}>
      <RulesFields
        draft={draft}
        errors={isTried ? errors : {}}
        onChange={setDraft}
        picker={picker}
        suggested={suggested}
        above={
          <Section
            title="Start with a template"
            hint="It fills the form. You can change every value, and nothing is signed that you do not see here."
          >
            <TemplateChoice shown={templateIn(draft)} onChoose={choose} />
          </Section>
        }
      />
      <div className={styles.review}>
        <Section title="Summary">
          <Stack>
            <Story sentences={hasErrors ? [] : describeRules(draft)} />
            {create.error && <ErrorNotice title="The agent was not created" error={create.error} />}
            <PendingButton
              type="submit"
              variant="filled"
              size="lg"
              fullWidth
              pending={
                create.isPending ? "Creating…" : chosen !== undefined && "Loading its payees…"
              }
            >
              Create agent
            </PendingButton>
            <Text c="dimmed" size="sm">
              You sign these rules. No money moves, and you can change every rule later.
            </Text>
          </Stack>
        </Section>
      </div>
    </form>
  );
}

/** The template that a link named, once: later changes stay after a reload. */
function useWantedTemplate(choose: (template: Template | undefined) => void): void {
  const [search, setSearch] = useSearchParams();
  const wanted = search.get("template");
  useEffect(() => {
    if (wanted === null) return;
    const found = TEMPLATES.find(({ id }) => id === wanted);
    if (found) choose(found);
    setSearch(
      (all) => {
        all.delete("template");
        return all;
      },
      { replace: true },
    );
    // Only the link decides when; the form as it is then is what the template fills.
    // oxlint-disable-next-line react/exhaustive-deps
  }, [wanted]);
}

function Story({ sentences }: { sentences: string[] }): ReactNode {
  return (
    <div aria-live="polite" className={styles.story}>
      {sentences.length === 0 ? (
        <p className={styles.hint}>
          Name the agent and set its daily limit to see a summary of its rules.
        </p>
      ) : (
        sentences.map((sentence) => <p key={sentence}>{sentence}</p>)
      )}
    </div>
  );
}

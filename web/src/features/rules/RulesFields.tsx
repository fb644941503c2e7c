import { TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Fields, Section, Stack } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { infoQuery } from "../../shared/info.ts";
import { AllowlistEditor, type PayeePicker } from "./AllowlistEditor.tsx";
import { MoreLimits } from "./MoreLimits.tsx";
import { ExpiryField } from "./ExpiryField.tsx";
import { type RulesDraft, type RulesErrors, type RuleLabels, ruleLabelsOf } from "./rules.ts";

/** The form's labels come from the server's rules, so they are loaded first. */
export function WithRuleLabels({
  children,
}: {
  children: (labels: RuleLabels) => ReactNode;
}): ReactNode {
  const query = useQuery(infoQuery);
  // A later request that fails must not remove the form and the user's input.
  if (query.data) return children(ruleLabelsOf(query.data.rules));
  return (
    <QueryStatus query={query} what="the rules" failed="The rules could not be loaded">
      <Skeleton shape="block" count={2} />
    </QueryStatus>
  );
}

interface RulesFieldsProps {
  labels: RuleLabels;
  draft: RulesDraft;
  errors: RulesErrors;
  onChange: (draft: RulesDraft) => void;
  picker?: PayeePicker;
}

/** The same fields for creating and for editing an agent. */
export function RulesFields({
  labels,
  draft,
  errors,
  onChange,
  picker,
}: RulesFieldsProps): ReactNode {
  const set = (change: Partial<RulesDraft>): void => {
    onChange({ ...draft, ...change });
  };
  return (
    <Stack gap={5}>
      <Section title="Limits">
        <Stack gap={4}>
          <TextInput
            label="Name"
            placeholder="research-agent"
            required
            maxLength={80}
            autoComplete="off"
            value={draft.name}
            error={errors.name}
            onChange={(event) => {
              set({ name: event.currentTarget.value });
            }}
          />
          <Fields>
            <AmountInput
              label={labels.dailyLimit.label}
              description={labels.dailyLimit.help}
              placeholder="5.00"
              required
              value={draft.dailyLimit}
              error={errors.dailyLimit}
              onChange={(dailyLimit) => {
                set({ dailyLimit });
              }}
            />
            <AmountInput
              label={labels.perPaymentLimit.label}
              description={labels.perPaymentLimit.help}
              placeholder="None"
              value={draft.perPaymentLimit}
              error={errors.perPaymentLimit}
              onChange={(perPaymentLimit) => {
                set({ perPaymentLimit });
              }}
            />
          </Fields>
          <MoreLimits labels={labels} draft={draft} errors={errors} set={set} />
          <ExpiryField
            label={labels.expiresAt.label}
            value={draft.expiresAt}
            error={errors.expiresAt}
            onChange={(expiresAt) => {
              set({ expiresAt });
            }}
          />
        </Stack>
      </Section>
      <Section title={labels.allowlist.label} hint={labels.allowlist.help}>
        <AllowlistEditor
          labels={labels.payee}
          value={draft.allowlist}
          onChange={(allowlist) => {
            set({ allowlist });
          }}
          picker={picker}
        />
      </Section>
    </Stack>
  );
}

import { Stack, TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import { AGENT_FIELDS, type AgentFieldName } from "../../../../packages/rules/src/fields.ts";
import { Fields, Section } from "../../components/Layout.tsx";
import { AllowlistEditor, type PayeePicker } from "./AllowlistEditor.tsx";
import { MoreLimits } from "./MoreLimits.tsx";
import type { RulesDraft, RulesErrors } from "./rules.ts";
import { SettingField } from "./SettingField.tsx";
import type { SuggestedPayee } from "./templates.ts";

/** The settings that every owner sees at once. */
const FIRST = ["dailyLimit", "perPaymentLimit"] as const;
const LAST = "expiresAt";

interface RulesFieldsProps {
  draft: RulesDraft;
  errors: RulesErrors;
  onChange: (draft: RulesDraft) => void;
  picker?: PayeePicker;
  suggested?: readonly SuggestedPayee[];
  above?: ReactNode;
  /** None while it is created. */
  agentId?: string;
}

/** The same fields for creating and for editing an agent. */
export function RulesFields(props: RulesFieldsProps): ReactNode {
  const { draft, errors, onChange, picker, suggested, above, agentId } = props;
  const set = (change: Partial<RulesDraft>): void => {
    onChange({ ...draft, ...change });
  };
  const setting = (name: AgentFieldName): ReactNode =>
    AGENT_FIELDS.filter((field) => field.name === name).map((field) => (
      <SettingField
        key={name}
        field={field}
        value={draft[name]}
        error={errors[name]}
        onChange={(value) => {
          set({ [name]: value });
        }}
      />
    ));
  return (
    <Stack gap="lg">
      {above}
      <Section title="Limits">
        <Stack>
          <TextInput
            label="Name"
            placeholder="research-agent"
            required
            maxLength={80}
            value={draft.name}
            error={errors.name}
            onChange={(event) => {
              set({ name: event.currentTarget.value });
            }}
          />
          <Fields>{FIRST.map(setting)}</Fields>
          <MoreLimits except={[...FIRST, LAST]} draft={draft} errors={errors} set={set} />
          {setting(LAST)}
        </Stack>
      </Section>
      <Section title="Allowed payees" hint="The agent can pay only these payees.">
        <AllowlistEditor
          value={draft.allowlist}
          onChange={(allowlist) => {
            set({ allowlist });
          }}
          picker={picker}
          suggested={suggested}
          agentId={agentId}
        />
      </Section>
    </Stack>
  );
}

import { TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Fields, Section, Stack } from "../../components/Layout.tsx";
import { AllowlistEditor, type PayeePicker } from "./AllowlistEditor.tsx";
import { ExpiryField } from "./ExpiryField.tsx";
import type { RulesDraft, RulesErrors } from "./rules.ts";

interface RulesFieldsProps {
  draft: RulesDraft;
  errors: RulesErrors;
  onChange: (draft: RulesDraft) => void;
  picker?: PayeePicker;
}

/** The same fields for a new agent and for one that is edited. */
export function RulesFields({ draft, errors, onChange, picker }: RulesFieldsProps): ReactNode {
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
              label="Daily limit"
              description="In any 24 hours, rolling"
              placeholder="5.00"
              required
              value={draft.dailyLimit}
              error={errors.dailyLimit}
              onChange={(dailyLimit) => {
                set({ dailyLimit });
              }}
            />
            <AmountInput
              label="Limit per payment"
              description="Optional"
              placeholder="None"
              value={draft.perPaymentLimit}
              error={errors.perPaymentLimit}
              onChange={(perPaymentLimit) => {
                set({ perPaymentLimit });
              }}
            />
          </Fields>
          <ExpiryField
            value={draft.expiresAt}
            error={errors.expiresAt}
            onChange={(expiresAt) => {
              set({ expiresAt });
            }}
          />
        </Stack>
      </Section>
      <Section title="Who may be paid" hint="Everybody else is refused. An empty list pays nobody.">
        <AllowlistEditor
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

import { TextInput } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Fields, Stack } from "../../components/Layout.tsx";
import { Select } from "../../components/Select.tsx";
import type { RulesDraft, RulesErrors, RuleLabels } from "./rules.ts";
import styles from "./MoreLimits.module.css";

const REACH = [
  { value: "any", label: "Any site" },
  { value: "sites", label: "Only the sites of its payees" },
] as const;

interface MoreLimitsProps {
  labels: RuleLabels;
  draft: RulesDraft;
  errors: RulesErrors;
  set: (change: Partial<RulesDraft>) => void;
}

/** Limits that most agents do not need, collapsed so that the form stays short. */
export function MoreLimits({ labels, draft, errors, set }: MoreLimitsProps): ReactNode {
  const isUsed =
    draft.weeklyLimit !== "" ||
    draft.monthlyLimit !== "" ||
    draft.paymentsPerHour !== "" ||
    draft.fetch !== "any";
  const [isOpen, setOpen] = useState(isUsed);
  return (
    <details
      className={styles.root}
      open={isOpen}
      onToggle={(event) => {
        setOpen(event.currentTarget.open);
      }}
    >
      <summary>More limits: weekly, monthly, payments per hour, sites</summary>
      <Stack gap={4}>
        <Fields>
          {(["weeklyLimit", "monthlyLimit"] as const).map((name) => (
            <AmountInput
              key={name}
              label={labels[name].label}
              description={labels[name].help}
              placeholder="None"
              value={draft[name]}
              error={errors[name]}
              onChange={(value) => {
                set({ [name]: value });
              }}
            />
          ))}
        </Fields>
        <Fields>
          <TextInput
            label={labels.paymentsPerHour.label}
            description={labels.paymentsPerHour.help}
            placeholder="No limit"
            inputMode="numeric"
            autoComplete="off"
            value={draft.paymentsPerHour}
            error={errors.paymentsPerHour}
            onChange={(event) => {
              set({ paymentsPerHour: event.currentTarget.value.replaceAll(/\D/g, "") });
            }}
          />
          <Select
            label="Sites it may fetch from"
            description="Also applies to free responses"
            value={draft.fetch}
            onChange={(fetch) => {
              set({ fetch });
            }}
            options={REACH}
          />
        </Fields>
      </Stack>
    </details>
  );
}

import { type ReactNode, useState } from "react";
import {
  AGENT_FIELDS,
  type AgentFieldName,
  type Field,
} from "../../../../packages/rules/src/fields.ts";
import { Fields } from "../../components/Layout.tsx";
import styles from "./MoreLimits.module.css";
import { EMPTY_RULES, type RulesDraft, type RulesErrors } from "./rules.ts";
import { SettingField } from "./SettingField.tsx";

interface MoreLimitsProps {
  /** The settings that the form shows elsewhere. */
  except: readonly AgentFieldName[];
  draft: RulesDraft;
  errors: RulesErrors;
  set: (change: Partial<RulesDraft>) => void;
}

const nameOf = (field: Field): AgentFieldName => field.name as AgentFieldName;

/** Settings that most agents do not need, collapsed so that the form stays short. */
export function MoreLimits({ except, draft, errors, set }: MoreLimitsProps): ReactNode {
  const fields = AGENT_FIELDS.filter((field) => !except.includes(nameOf(field)));
  const isAnySet = fields.some((field) => draft[nameOf(field)] !== EMPTY_RULES[nameOf(field)]);
  const [isOpen, setOpen] = useState(isAnySet);
  const [wasAnySet, setWasAnySet] = useState(isAnySet);
  // A template may set one of them: what will be signed must be visible.
  if (isAnySet !== wasAnySet) {
    setWasAnySet(isAnySet);
    if (isAnySet) setOpen(true);
  }
  return (
    <details
      className={styles.root}
      open={isOpen}
      onToggle={(event) => {
        setOpen(event.currentTarget.open);
      }}
    >
      <summary>More limits: {fields.map(({ label }) => label.toLowerCase()).join(", ")}</summary>
      <Fields>
        {fields.map((field) => (
          <SettingField
            key={field.name}
            field={field}
            value={draft[nameOf(field)]}
            error={errors[nameOf(field)]}
            onChange={(value) => {
              set({ [field.name]: value });
            }}
          />
        ))}
      </Fields>
    </details>
  );
}

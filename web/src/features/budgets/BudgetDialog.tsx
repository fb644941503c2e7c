import { TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { BUDGET_FIELDS } from "../../../../packages/rules/src/budgets.ts";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Dialog } from "../../components/Dialog.tsx";
import { Note } from "../../components/Layout.tsx";
import { RequestForm } from "../../components/RequestForm.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import type { Budget } from "../../lib/wire.ts";
import { createBudget, editBudget, limitsOf, needsSignature, type Limits } from "./api.ts";
import { useSigning } from "./use-signing.ts";

const NONE: Limits = { dailyLimit: null, weeklyLimit: null, monthlyLimit: null };

/** A new budget, or the name and the limits of one. */
export function BudgetDialog({
  budget,
  onClose,
}: {
  budget?: Budget;
  onClose: () => void;
}): ReactNode {
  const signing = useSigning();
  const [name, setName] = useState(budget?.name ?? "");
  const [limits, setLimits] = useState<Limits>(budget ? limitsOf(budget) : NONE);
  const draft = { name: name.trim(), ...limits };
  const isSigned = budget !== undefined && needsSignature(budget, draft);
  const save = useMutation({
    mutationFn: () => (budget ? editBudget(budget, draft, signing) : createBudget(draft)),
    onSuccess: onClose,
    onSettled: invalidate.afterBudget,
  });
  const isLimited = BUDGET_FIELDS.some((field) => limits[field.name] !== null);
  return (
    <Dialog opened onClose={onClose} title={budget ? `Change ${budget.name}` : "New budget"}>
      <RequestForm
        mutation={save}
        failed={budget ? "The budget was not changed" : "The budget was not created"}
        confirm={budget ? (isSigned ? "Sign and save" : "Save") : "Create budget"}
        pending="Saving…"
        disabled={draft.name === "" || !isLimited}
        onCancel={onClose}
      >
        <TextInput
          label="Name"
          placeholder="Research team"
          maxLength={60}
          data-autofocus
          value={name}
          onChange={(event) => {
            setName(event.currentTarget.value);
          }}
        />
        {BUDGET_FIELDS.map((field) => (
          <AmountInput
            key={field.name}
            label={field.label}
            description="Of all agents together. Empty: no such limit"
            value={limits[field.name] ?? ""}
            onChange={(value) => {
              setLimits((current) => ({ ...current, [field.name]: value === "" ? null : value }));
            }}
          />
        ))}
        <Note>
          {isSigned
            ? "A higher or dropped limit needs your signature."
            : "At least one limit. What only limits needs no signature."}
        </Note>
      </RequestForm>
    </Dialog>
  );
}

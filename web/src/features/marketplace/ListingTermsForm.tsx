import { Textarea, TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Fields } from "../../components/Layout.tsx";
import { RequestForm } from "../../components/RequestForm.tsx";
import { toCategory } from "./api.ts";
import { type ListingTarget, useListingTerms } from "./use-listing-terms.ts";

/** The description of the API, and the maximum price that agents pay. */
export function ListingTermsForm({
  onCancel,
  ...target
}: ListingTarget & { onCancel: () => void }): ReactNode {
  const { terms, change, save, ceilingError } = useListingTerms(target);
  return (
    <RequestForm
      mutation={save}
      failed="The listing was not saved"
      confirm={target.listing ? "Save changes" : "List it"}
      pending="Saving…"
      disabled={terms.name.trim() === "" || ceilingError !== undefined}
      onCancel={onCancel}
    >
      <TextInput
        label="Name"
        required
        maxLength={80}
        value={terms.name}
        onChange={(event) => {
          change({ name: event.currentTarget.value });
        }}
      />
      <Textarea
        label="Description"
        rows={3}
        maxLength={500}
        value={terms.description}
        onChange={(event) => {
          change({ description: event.currentTarget.value });
        }}
      />
      <Fields>
        <TextInput
          label="Category"
          description="One short word"
          placeholder="data"
          maxLength={40}
          value={terms.category}
          onChange={(event) => {
            change({ category: toCategory(event.currentTarget.value) });
          }}
        />
        <AmountInput
          label="Price ceiling"
          description="Agents refuse a higher price"
          value={terms.maxPrice}
          error={ceilingError}
          onChange={(maxPrice) => {
            change({ maxPrice });
          }}
        />
      </Fields>
    </RequestForm>
  );
}

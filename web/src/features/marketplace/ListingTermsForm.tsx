import { Textarea, TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Fields, Row, Stack } from "../../components/Layout.tsx";
import { toCategory } from "./api.ts";
import { type ListingTarget, useListingTerms } from "./use-listing-terms.ts";

/** The description of the API, and the maximum price that agents pay. */
export function ListingTermsForm({
  onCancel,
  ...target
}: ListingTarget & { onCancel: () => void }): ReactNode {
  const { terms, change, save, ceilingError } = useListingTerms(target);
  const isReady = terms.name.trim() !== "" && ceilingError === undefined;
  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        if (isReady && !save.isPending) save.mutate();
      }}
    >
      <Stack gap={4}>
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
        {save.error && <ErrorNotice title="The listing was not saved" error={save.error} />}
        <Row end>
          <Button onClick={onCancel}>Cancel</Button>
          <Button
            type="submit"
            variant="primary"
            disabled={!isReady}
            pending={save.isPending && "Saving…"}
          >
            {target.listing ? "Save changes" : "List it"}
          </Button>
        </Row>
      </Stack>
    </form>
  );
}

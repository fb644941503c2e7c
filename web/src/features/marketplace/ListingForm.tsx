import { Textarea, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { AmountInput } from "../../components/AmountInput.tsx";
import { Button } from "../../components/Button.tsx";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Fields, KeyValues, Note, Row, Stack } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { Select } from "../../components/Select.tsx";
import { atomic, canonical, formatUsdc, parseUsdc } from "../../lib/money.ts";
import type { Listing } from "../../lib/wire.ts";
import { createListing, probeListing, updateListing } from "./api.ts";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"].map((value) => ({ value, label: value }));

interface ListingFormProps {
  /** Edit this one; without it, a new listing begins with a probe of its URL. */
  listing?: Listing;
  onDone: (listing: Listing) => void;
  onCancel: () => void;
}

export function ListingForm({ listing, onDone, onCancel }: ListingFormProps): ReactNode {
  const client = useQueryClient();
  const [url, setUrl] = useState(listing?.url ?? "");
  const [method, setMethod] = useState<string>(listing?.method ?? "GET");
  const [name, setName] = useState(listing?.name ?? "");
  const [description, setDescription] = useState(listing?.description ?? "");
  const [category, setCategory] = useState(listing?.category ?? "");
  const [maxPrice, setMaxPrice] = useState(listing?.maxPrice ?? "");

  const probe = useMutation({
    mutationFn: () => probeListing(url.trim(), method),
    onSuccess: (found) => {
      if (description === "" && found.description !== null)
        setDescription(found.description.slice(0, 500));
      if (maxPrice === "") setMaxPrice(found.price);
    },
  });
  const save = useMutation({
    mutationFn: () => {
      const terms = {
        name: name.trim(),
        description: description.trim(),
        ...(category === "" ? {} : { category }),
        ...(maxPrice === "" ? {} : { maxPrice: canonical(maxPrice) }),
      };
      return listing
        ? updateListing(listing.id, terms)
        : createListing({ ...terms, url: url.trim(), method });
    },
    onSuccess: async (saved) => {
      notifications.show({
        message: listing ? "The listing is changed." : `${saved.name} is listed.`,
      });
      await Promise.all(
        ["listings", "listing"].map((key) => client.invalidateQueries({ queryKey: [key] })),
      );
      onDone(saved);
    },
  });
  const price = listing?.price ?? probe.data?.price;
  const cap = parseUsdc(maxPrice);
  const capError =
    maxPrice !== "" && price !== undefined && cap !== undefined && cap < atomic(price)
      ? `The price is ${formatUsdc(price)} now.`
      : undefined;
  const isReady = listing !== undefined || probe.isSuccess;

  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        if (!isReady) {
          if (!probe.isPending) probe.mutate();
        } else if (!save.isPending && name.trim() !== "" && capError === undefined) save.mutate();
      }}
    >
      <Stack gap={4}>
        {!listing && (
          <>
            <TextInput
              label="URL of the paid API"
              placeholder="https://api.example.com/v1/report"
              required
              type="url"
              autoComplete="off"
              spellCheck={false}
              data-autofocus
              value={url}
              onChange={(event) => {
                setUrl(event.currentTarget.value);
                probe.reset();
              }}
            />
            <Select
              label="Method"
              value={method}
              options={METHODS}
              onChange={(next) => {
                setMethod(next);
                probe.reset();
              }}
            />
            {probe.error && (
              <ErrorNotice
                title="This URL does not answer with a payable 402"
                error={probe.error}
              />
            )}
            {!probe.isSuccess && (
              <Row end>
                <Button onClick={onCancel}>Cancel</Button>
                <Button
                  type="submit"
                  variant="primary"
                  disabled={url.trim() === ""}
                  pending={probe.isPending && "Asking the API…"}
                >
                  Check the URL
                </Button>
              </Row>
            )}
          </>
        )}
        {probe.data && (
          <Note tone="ok">
            <Stack gap={2}>
              <p role="status">
                The API answers with terms that agents here can pay. They are pinned: if they
                change, nobody pays by this listing.
              </p>
              <KeyValues
                rows={[
                  ["Price", <Money key="price" amount={probe.data.price} />],
                  ["Payee", <Address key="payee" value={probe.data.payTo} copy={false} />],
                  ["Network", probe.data.network],
                ]}
              />
            </Stack>
          </Note>
        )}
        {isReady && (
          <>
            <TextInput
              label="Name"
              required
              maxLength={80}
              value={name}
              error={save.isError && name.trim() === "" ? "Give it a name." : undefined}
              onChange={(event) => {
                setName(event.currentTarget.value);
              }}
            />
            <Textarea
              label="Description"
              rows={3}
              maxLength={500}
              value={description}
              onChange={(event) => {
                setDescription(event.currentTarget.value);
              }}
            />
            <Fields>
              <TextInput
                label="Category"
                description="One short word"
                placeholder="data"
                maxLength={40}
                value={category}
                onChange={(event) => {
                  setCategory(
                    event.currentTarget.value.toLowerCase().replaceAll(/[^a-z0-9-]/g, ""),
                  );
                }}
              />
              <AmountInput
                label="Price ceiling"
                description="A dearer 402 is refused"
                value={maxPrice}
                error={capError}
                onChange={setMaxPrice}
              />
            </Fields>
            {save.error && <ErrorNotice title="The listing was not saved" error={save.error} />}
            <Row end>
              <Button onClick={onCancel}>Cancel</Button>
              <Button
                type="submit"
                variant="primary"
                disabled={name.trim() === ""}
                pending={save.isPending && "Saving…"}
              >
                {listing ? "Save changes" : "List it"}
              </Button>
            </Row>
          </>
        )}
      </Stack>
    </form>
  );
}

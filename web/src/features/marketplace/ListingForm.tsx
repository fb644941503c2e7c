import { Stack } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Address } from "../../components/Address.tsx";
import { KeyValues, Note } from "../../components/Layout.tsx";
import { Price } from "../../components/Price.tsx";
import type { Listing, ProbeResult } from "../../lib/wire.ts";
import { ListingTermsForm } from "./ListingTermsForm.tsx";
import { ProbeForm } from "./ProbeForm.tsx";

interface ListingFormProps {
  /** The listing to edit; without it, a new listing starts with a probe of its URL. */
  listing?: Listing;
  onDone: (listing: Listing) => void;
  onCancel: () => void;
}

export function ListingForm({ listing, onDone, onCancel }: ListingFormProps): ReactNode {
  const [found, setFound] = useState<ProbeResult>();
  if (listing) return <ListingTermsForm listing={listing} onDone={onDone} onCancel={onCancel} />;
  return (
    <Stack>
      <ProbeForm found={found} onFound={setFound} onCancel={onCancel} />
      {found && (
        <>
          <Found found={found} />
          <ListingTermsForm
            key={found.url + found.method}
            found={found}
            onDone={onDone}
            onCancel={onCancel}
          />
        </>
      )}
    </Stack>
  );
}

function Found({ found }: { found: ProbeResult }): ReactNode {
  return (
    <Note color="green">
      <Stack gap="xs">
        <p role="status">
          Agents can pay these terms. If the API changes them, agents stop paying through this
          listing.
        </p>
        <KeyValues
          rows={[
            ["Price", <Price key="price" of={found} />],
            ["Payee", <Address key="payee" value={found.payTo} copy={false} />],
            ["Network", found.network],
          ]}
        />
      </Stack>
    </Note>
  );
}

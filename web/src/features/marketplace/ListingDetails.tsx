import { Stack } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { Address } from "../../components/Address.tsx";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { CopyText } from "../../components/CopyText.tsx";
import { KeyValues, Note, Section } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { Price } from "../../components/Price.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { fetchPaid } from "../../lib/snippets.ts";
import type { Listing } from "../../lib/wire.ts";
import { useExplorer, useInfo, useNetwork } from "../../shared/info.ts";
import { ListingStatus } from "./ListingCard.tsx";

export function ListingTerms({ listing }: { listing: Listing }): ReactNode {
  const network = useNetwork(listing.network);
  const explorer = useExplorer(listing.network);
  return (
    <Stack gap="lg">
      {listing.status !== "active" && listing.statusReason !== null && (
        <Note color="yellow">{listing.statusReason}</Note>
      )}
      <FoundIn listing={listing} />
      {listing.similarTo !== null && (
        <Note color="yellow">
          Another seller has a listing with the same texts and more payers:{" "}
          <Link to={`/marketplace/${listing.similarTo}`}>show it</Link>. Check the address before
          you pay.
        </Note>
      )}
      <Section title="Terms">
        <KeyValues
          rows={[
            ["Price", <Price key="price" of={listing} />],
            ["Price ceiling", <Money key="max" amount={listing.maxPrice} />],
            ["Payee", <Address key="payee" value={listing.payTo} explorerUrl={explorer} />],
            ["Network", network?.name ?? listing.network],
            [
              "URL",
              <CopyText
                key="url"
                value={listing.url}
                shown={`${listing.method} ${listing.url}`}
                what="URL"
              />,
            ],
            ["Status", <ListingStatus key="status" listing={listing} />],
            ["Last checked", <TimeAgo key="probed" iso={listing.lastProbedAt} none="Not yet" />],
            ["Paid calls through Purser", listing.uses],
            ["Payers in the last 30 days", listing.payers],
          ]}
        />
      </Section>
    </Stack>
  );
}

/** Nobody here signed for it, which a buyer should see before its texts. */
function FoundIn({ listing: { source, cell } }: { listing: Listing }): ReactNode {
  if (typeof source === "object")
    return (
      <Note color="yellow">
        Found in the catalogue of {new URL(source.catalogue).host}; nobody signed for it here.
      </Note>
    );
  if (source === "cell") return <Note>Listed in another part ({cell}) of this service.</Note>;
  return source === "well-known" && <Note>Found in the host’s own list of its paid APIs.</Note>;
}

export function ListingCode({ listing }: { listing: Listing }): ReactNode {
  const info = useInfo();
  const base = info?.publicUrl ?? globalThis.location.origin;
  return (
    <>
      {listing.thirdParty.sample !== null && (
        <CodeBlock label="Sample response" code={listing.thirdParty.sample} />
      )}
      <CodeBlock
        label="Call it with an agent's key"
        code={fetchPaid(base, "$AGENT_API_KEY", { listingId: listing.id })}
      />
    </>
  );
}

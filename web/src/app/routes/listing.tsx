import { Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link, useNavigate, useParams } from "react-router";
import { Columns, Section } from "../../components/Layout.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";
import { useAgentChoice } from "../../features/agents/AgentSearch.tsx";
import { listingQuery } from "../../features/marketplace/api.ts";
import { ListingCode, ListingTerms } from "../../features/marketplace/ListingDetails.tsx";
import { ManageListing } from "../../features/marketplace/ManageListing.tsx";
import { TryListing } from "../../features/marketplace/TryListing.tsx";
import { AllowPayee } from "../../features/rules/AllowPayee.tsx";
import type { Listing } from "../../lib/wire.ts";
import { OwnerOnly } from "../../shared/session/OwnerOnly.tsx";
import { useSession } from "../../shared/session/session-context.ts";
import { SignInButton } from "../../shared/session/SignInButton.tsx";
import { Absent } from "../Absent.tsx";

export default function ListingScreen(): ReactNode {
  const { listingId = "" } = useParams();
  const navigate = useNavigate();
  const { session } = useSession();
  const query = useQuery(listingQuery(listingId));
  const { data: listing } = query;
  const above = (
    <Text span c="dimmed" size="sm">
      <Link className="link-alone" to="/marketplace">
        Marketplace
      </Link>
    </Text>
  );
  if (!listing)
    return (
      <Absent
        query={query}
        above={above}
        what="the listing"
        failed="The listing could not be loaded"
        missing="Listing not found"
        missingLead="It was removed, or the address is wrong."
      />
    );
  return (
    <>
      <PageHeader
        above={above}
        title={listing.thirdParty.name}
        lead={listing.thirdParty.description}
        actions={
          listing.mine &&
          session && (
            <OwnerOnly>
              <ManageListing
                listing={listing}
                onRemoved={() => void navigate("/marketplace", { replace: true })}
              />
            </OwnerOnly>
          )
        }
      />
      <Stack gap="lg">
        <Columns>
          <ListingTerms listing={listing} />
          {session ? (
            <OwnerOnly>
              <TryAsOwner listing={listing} />
            </OwnerOnly>
          ) : (
            session === null && <TryAfterSignIn />
          )}
        </Columns>
        <ListingCode listing={listing} />
      </Stack>
    </>
  );
}

function TryAsOwner({ listing }: { listing: Listing }): ReactNode {
  const { query, search, more } = useAgentChoice();
  return (
    <TryListing
      listing={listing}
      agents={query}
      search={search}
      more={more}
      allowSeller={(agent) => (
        <AllowPayee
          agent={agent}
          payee={{ address: listing.payTo, label: listing.thirdParty.name }}
        >
          Allow seller
        </AllowPayee>
      )}
    />
  );
}

const TryAfterSignIn = (): ReactNode => (
  <Section title="Try with an agent">
    <p>Sign in to try this with one of your agents.</p>
    <br />
    <SignInButton>Sign in</SignInButton>
  </Section>
);

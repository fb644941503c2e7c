import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link, useNavigate, useParams } from "react-router";
import { ErrorNotice } from "../../components/ErrorNotice.tsx";
import { Columns, Muted, PageHeader, Section, Stack } from "../../components/Layout.tsx";
import { Loading, Skeleton } from "../../components/Skeleton.tsx";
import { TryListing } from "../../features/agents/TryListing.tsx";
import { listingQuery } from "../../features/marketplace/api.ts";
import { ListingCode, ListingTerms } from "../../features/marketplace/ListingDetails.tsx";
import { ManageListing } from "../../features/marketplace/ManageListing.tsx";
import { SignInButton } from "../../shared/session/SignInButton.tsx";
import { useSession } from "../../shared/session/session-context.ts";
import { ApiError } from "../../lib/api.ts";

export default function ListingScreen(): ReactNode {
  const { listingId = "" } = useParams();
  const navigate = useNavigate();
  const { session } = useSession();
  const { data: listing, error, refetch } = useQuery(listingQuery(listingId));
  const above = (
    <Muted>
      <Link to="/marketplace">Marketplace</Link>
    </Muted>
  );
  if (!listing) {
    if (error instanceof ApiError && error.status === 404)
      return (
        <PageHeader
          above={above}
          title="No such listing"
          lead="It was removed, or the address is mistyped."
        />
      );
    if (error)
      return (
        <ErrorNotice
          title="The listing could not be loaded"
          error={error}
          onRetry={() => void refetch()}
        />
      );
    return (
      <Loading label="the listing">
        <Skeleton shape="title" />
        <Skeleton shape="block" count={2} />
      </Loading>
    );
  }
  return (
    <>
      <PageHeader
        above={above}
        title={listing.name}
        lead={listing.description}
        actions={
          listing.mine &&
          session && (
            <ManageListing
              listing={listing}
              onRemoved={() => void navigate("/marketplace", { replace: true })}
            />
          )
        }
      />
      <Stack gap={5}>
        <Columns>
          <ListingTerms listing={listing} />
          {session ? (
            <TryListing listing={listing} />
          ) : (
            session === null && (
              <Section title="Try with an agent">
                <p>Sign in to try this with one of your agents.</p>
                <br />
                <SignInButton>Sign in</SignInButton>
              </Section>
            )
          )}
        </Columns>
        <ListingCode listing={listing} />
      </Stack>
    </>
  );
}

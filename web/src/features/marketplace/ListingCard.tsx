import { Badge, Group, Paper, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { Price } from "../../components/Price.tsx";
import type { Listing } from "../../lib/wire.ts";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import styles from "./Marketplace.module.css";

export function ListingStatus({ listing }: { listing: Listing }): ReactNode {
  if (listing.status === "paused") return <Badge color="yellow">Paused</Badge>;
  if (listing.flag === "listing_mismatch") return <Badge color="red">Terms changed</Badge>;
  if (listing.status === "failing") return <Badge color="red">Not responding</Badge>;
  return <Badge color="green">Active</Badge>;
}

/** Why a listing is where it is: proof that others paid it, and the last check. */
function Proof({ listing }: { listing: Listing }): ReactNode {
  const { payers, lastProbedAt, status } = listing;
  return (
    <Text c="dimmed" size="xs">
      {payers === 0 ? "No payers yet" : `${payers} ${payers === 1 ? "payer" : "payers"} in 30 days`}
      {lastProbedAt !== null && status === "active" && (
        <>
          {", checked "}
          <TimeAgo iso={lastProbedAt} none="" />
        </>
      )}
    </Text>
  );
}

export function ListingCard({ listing }: { listing: Listing }): ReactNode {
  return (
    <Paper component="li" className={styles.card}>
      <Group justify="space-between" align="baseline" wrap="nowrap" gap="sm">
        <h2>
          <Link className="row-link" to={`/marketplace/${listing.id}`}>
            {listing.thirdParty.name}
          </Link>
        </h2>
        <Price of={listing} />
      </Group>
      <Text c="dimmed" size="xs" ff="monospace" truncate>
        {listing.host}
      </Text>
      <Text c="dimmed" size="sm" lineClamp={2}>
        {listing.thirdParty.description}
      </Text>
      <Proof listing={listing} />
      <Group gap={6}>
        {listing.thirdParty.category !== "" && (
          <Badge mod="plain">{listing.thirdParty.category}</Badge>
        )}
        <ListingStatus listing={listing} />
        {typeof listing.source === "object" && <Badge color="yellow">From a catalogue</Badge>}
        {listing.similarTo !== null && (
          <Badge mod="plain" color="yellow">
            Similar to another
          </Badge>
        )}
        {listing.mine && (
          <Badge mod="plain" color="sea">
            Mine
          </Badge>
        )}
      </Group>
    </Paper>
  );
}

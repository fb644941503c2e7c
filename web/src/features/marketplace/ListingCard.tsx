import type { ReactNode } from "react";
import { Link } from "react-router";
import { Badge } from "../../components/Badge.tsx";
import { Money } from "../../components/Money.tsx";
import type { Listing } from "../../lib/wire.ts";
import styles from "./Marketplace.module.css";

export function ListingStatus({ listing }: { listing: Listing }): ReactNode {
  if (listing.status === "paused") return <Badge tone="warn">Paused</Badge>;
  if (listing.flag === "listing_mismatch") return <Badge tone="bad">Terms changed</Badge>;
  if (listing.status === "failing") return <Badge tone="bad">Not responding</Badge>;
  return <Badge tone="ok">Active</Badge>;
}

export function ListingCard({ listing }: { listing: Listing }): ReactNode {
  return (
    <li className={styles.card}>
      <div className={styles.cardHead}>
        <h2>
          <Link to={`/marketplace/${listing.id}`}>{listing.thirdParty.name}</Link>
        </h2>
        <Money amount={listing.price} />
      </div>
      <p className={styles.host}>{listing.host}</p>
      <p className={styles.description}>{listing.thirdParty.description}</p>
      <div className={styles.tags}>
        {listing.thirdParty.category !== "" && (
          <Badge icon={<></>}>{listing.thirdParty.category}</Badge>
        )}
        <ListingStatus listing={listing} />
        {listing.mine && (
          <Badge tone="accent" icon={<></>}>
            Mine
          </Badge>
        )}
      </div>
    </li>
  );
}
